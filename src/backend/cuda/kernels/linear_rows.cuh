// The way out of the wide kernel: sums of a block -> outputs, eight neighbouring ones of a row at a time, so that rows
// are read and written in whole vectors. Rounds as output.cuh does.
#pragma once

#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace voxrt::cuda_kernels {

__device__ __forceinline__ void Load8(float (&y)[8], const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
  y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w, y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
}
__device__ __forceinline__ void LoadGlobal8(float (&y)[8], const float* from) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(from)), b = __ldcg(reinterpret_cast<const float4*>(from) + 1);
  y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w, y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
}
__device__ __forceinline__ void AddGlobal8(float (&y)[8], const float* from) {
  float other[8];
  LoadGlobal8(other, from);
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] += other[i];
}
__device__ __forceinline__ uint4 Pack8(const float (&y)[8]) {
  return {PackBf16(y[0], y[1]), PackBf16(y[2], y[3]), PackBf16(y[4], y[5]), PackBf16(y[6], y[7])};
}

// What a block has summed: `tiles` tiles from `tile`, columns that are rows of x from `row`.
struct RowBlock {
  int tile, tiles, row;
  const int64_t* cache_token;  // of each column (kQkv)
};

// What an instance does with its sums: anything (asked at run time), or one kind of output in whole vectors alone.
// Phases pass through their code once, from caches that hold little of it: less code is less time.
enum class RowsUse : int32_t { kAny, kQkv, kSwiGlu, kAdd, kHead };
inline RowsUse RowsUseOf(const LinearParams& p) {
  const OutputRef& out = p.output;
  if (out.kind == OutputKind::kHead && out.data == nullptr) return RowsUse::kHead;
  if (!p.wide.vectors) return RowsUse::kAny;
  if (out.kind == OutputKind::kQkv) return RowsUse::kQkv;
  if (out.kind == OutputKind::kSwiGlu && out.element == Element::kBf16) return RowsUse::kSwiGlu;
  return out.kind == OutputKind::kAddTo ? RowsUse::kAdd : RowsUse::kAny;
}

// Outputs n .. n + 7 of row `row`, all of them there.
template <RowsUse kUse>
__device__ __forceinline__ void FinishVector(const OutputRef& out, int row, int n, float (&y)[8], int64_t cache_token) {
  constexpr bool kAny = kUse == RowsUse::kAny;
  const int64_t at = row * out.stride + n;
  if (kUse == RowsUse::kAdd || (kAny && out.kind == OutputKind::kAddTo)) {
    AddGlobal8(y, static_cast<const float*>(out.data) + at);
  } else if (kAny && out.kind == OutputKind::kGelu) {
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = GeluExact(y[i]);
  } else if (kUse == RowsUse::kQkv || (kAny && out.kind == OutputKind::kQkv)) {
    const int head_dim = out.cache.head_dim, head = n >> (head_dim == 64 ? 6 : 7), d = n & (head_dim - 1);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = RoundBf16(y[i]);
    if (head < out.heads + out.cache.kv_heads) {
      const int64_t angle = static_cast<int64_t>(row) * (head_dim / 2) + d / 2;
      const float4 c4 = __ldg(reinterpret_cast<const float4*>(out.cos + angle)),
                   s4 = __ldg(reinterpret_cast<const float4*>(out.sin + angle));
      const float c[4] = {c4.x, c4.y, c4.z, c4.w}, s[4] = {s4.x, s4.y, s4.z, s4.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) Rotate(y[2 * i], y[2 * i + 1], c[i], s[i]);
    }
    const uint4 packed = Pack8(y);
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(out.data) + at) = packed;
    if (out.store_cache && head >= out.heads) {
      const int64_t token =
          cache_token + static_cast<int64_t>(head - out.heads) * kPageTokens;  // k heads, then v heads
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(out.cache.data) + token * head_dim + d) = packed;
    }
    return;
  }
  if (kUse == RowsUse::kAdd || out.element == Element::kF32) {
    auto* const data = reinterpret_cast<float4*>(static_cast<float*>(out.data) + at);
    data[0] = {y[0], y[1], y[2], y[3]}, data[1] = {y[4], y[5], y[6], y[7]};
  } else {
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(out.data) + at) = Pack8(y);
  }
}

// Columns first .. end - 1 of a block, by its first `threads` threads. sums(column, output of the block, y): eight
// sums.
template <RowsUse kUse, typename Sums>
__device__ __forceinline__ void FinishRows(const LinearParams& p, const RowBlock& block, int first, int end,
                                           int threads, Sums&& sums) {
  constexpr bool kAny = kUse == RowsUse::kAny;
  const OutputRef& out = p.output;
  const int outputs = p.weight.rows, thread = threadIdx.x;
  const int columns = min(end, p.rows - block.row) - first;
  auto sums_at = [&](int column, int at, float(&y)[8]) {
    sums(column, at, y);
    if (p.weight.bias) AddGlobal8(y, p.weight.bias + block.tile * kTileRows + at);
  };
  if (kUse == RowsUse::kSwiGlu || (kAny && out.kind == OutputKind::kSwiGlu)) {
#pragma unroll 1
    for (int i = thread; i < columns * block.tiles; i += threads) {
      const int column = first + i / block.tiles, tile = i % block.tiles, n = (block.tile + tile) * 8;
      if (n >= outputs / 2) continue;
      float gate[8], up[8];
      sums_at(column, tile * kTileRows, gate);
      sums_at(column, tile * kTileRows + 8, up);
      const int64_t at = (block.row + column) * out.stride + n;
#pragma unroll
      for (int j = 0; j < 8; ++j) gate[j] = SiluProduct(gate[j], up[j]);
      if (!kAny || (p.wide.vectors && out.element == Element::kBf16)) {
        *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(out.data) + at) = Pack8(gate);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (n + j >= outputs / 2) continue;
          if (out.element == Element::kF32) {
            static_cast<float*>(out.data)[at + j] = gate[j];
          } else {
            static_cast<__nv_bfloat16*>(out.data)[at + j] = __float2bfloat16_rn(gate[j]);
          }
        }
      }
    }
    return;
  }
  const int chunks = block.tiles * 2;
  auto finish = [&](int column, int n, float(&y)[8]) {
    const int row = block.row + column;
    const int64_t token =
        kUse == RowsUse::kQkv || (kAny && out.kind == OutputKind::kQkv) ? block.cache_token[column] : 0;
    if (!kAny || p.wide.vectors) return FinishVector<kUse>(out, row, n, y, token);
    const int64_t angle = static_cast<int64_t>(row) * (out.cache.head_dim / 2);
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      Finish(out, outputs, row, n + j, y[j], y[j + 1], out.cos + angle, out.sin + angle, token);
  };
  if (kUse != RowsUse::kHead && out.kind != OutputKind::kHead) {
#pragma unroll 1
    for (int i = thread; i < columns * chunks; i += threads) {
      const int column = first + i / chunks, chunk = i % chunks;
      if (block.tile * kTileRows + chunk * 8 >= outputs) continue;
      float y[8];
      sums_at(column, chunk * 8, y);
      finish(column, block.tile * kTileRows + chunk * 8, y);
    }
    return;
  }
  if constexpr (!kAny && kUse != RowsUse::kHead) return;
  // Some lanes for each column, which find its best output together.
  int lanes = 1;
  while (lanes < 32 && lanes * 2 * (end - first) <= threads) lanes *= 2;
#pragma unroll 1
  for (int base = 0; base < columns; base += threads / lanes) {
    const int column = first + base + thread / lanes;
    const bool exists = column < first + columns;
    unsigned long long best = 0;
#pragma unroll 1
    for (int chunk = thread % lanes; exists && chunk < chunks; chunk += lanes) {
      const int n = block.tile * kTileRows + chunk * 8;
      if (n >= outputs) break;
      float y[8];
      sums_at(column, chunk * 8, y);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (n + j < outputs) best = max(best, ArgMaxKey(y[j], n + j));
      if (kAny && out.data) finish(column, n, y);
    }
    for (int offset = 1; offset < lanes; offset *= 2) best = max(best, __shfl_xor_sync(0xffffffffu, best, offset));
    if (exists && thread % lanes == 0) atomicMax(out.best + block.row + column, best);
  }
}

}  // namespace voxrt::cuda_kernels
