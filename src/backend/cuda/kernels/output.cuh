// What becomes of a linear's sums: store, GELU, residual add, SwiGLU, rotary + K/V append, head arg-max. Shared by the
// streaming and the wide kernel, so that both round alike.
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace voxrt::cuda_kernels {

__device__ __forceinline__ float GeluExact(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f)); }
__device__ __forceinline__ float SiluProduct(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

// A rotary pair. Which product is rounded before the sum is said, or kernels would choose it each for itself.
__device__ __forceinline__ void Rotate(float& x0, float& x1, float c, float s) {
  const float rotated = fmaf(x0, c, -__fmul_rn(x1, s));
  x1 = fmaf(x0, s, __fmul_rn(x1, c));
  x0 = rotated;
}

// index % capacity, without a 64-bit division where it can be helped.
__device__ __forceinline__ int RingPlace(int64_t index, int capacity) {
  if (index >> 31 != 0) return static_cast<int>(index % capacity);
  return static_cast<int>(static_cast<uint32_t>(index) % static_cast<uint32_t>(capacity));
}

// First element of token `index` of a slot in a page, head 0, K.
__device__ __forceinline__ int64_t CacheToken(const CacheRef& cache, int slot, int64_t index) {
  const int ring = RingPlace(index, cache.capacity);
  const int page = __ldg(cache.pages + static_cast<int64_t>(slot) * cache.pages_per_slot + ring / kPageTokens);
  return static_cast<int64_t>(page) * 2 * cache.kv_heads * kPageTokens + ring % kPageTokens;
}

// int8 form of one row of K or V of a head (backend/kv_int8.h), from the largest magnitude in it.
struct KvScale {
  float scale, inverse;
  __device__ __forceinline__ explicit KvScale(float top) {
    const bool empty = top < 1e-30f;  // kSmallestKvMagnitude
    scale = empty ? 0.0f : top / 127.0f;
    inverse = empty ? 0.0f : 127.0f / top;
  }
  __device__ __forceinline__ int Code(float x) const {
    return static_cast<int8_t>(fminf(fmaxf(rintf(x * inverse), -127.0f), 127.0f));
  }
};

// Order-preserving bits of the value above the complement of the index: the maximum is the largest logit, lowest index
// on a tie.
__device__ __forceinline__ unsigned long long ArgMaxKey(float value, int index) {
  if (value != value) value = -INFINITY;
  if (value == 0.0f) value = 0.0f;  // -0 and +0 tie
  const uint32_t bits = __float_as_uint(value);
  const uint32_t ordered = (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
  return (static_cast<unsigned long long>(ordered) << 32) | static_cast<uint32_t>(~static_cast<uint32_t>(index));
}

__device__ __forceinline__ void StorePair(const OutputRef& out, int rows, int64_t row, int n, float y0, float y1) {
  const int64_t at = row * out.stride + n;
  if (out.element == Element::kF32) {
    float* data = static_cast<float*>(out.data) + at;
    if (n < rows) data[0] = y0;
    if (n + 1 < rows) data[1] = y1;
  } else {
    auto* data = static_cast<__nv_bfloat16*>(out.data) + at;
    if (n + 1 < rows && (reinterpret_cast<uintptr_t>(data) & 3) == 0) {
      *reinterpret_cast<uint32_t*>(data) = PackBf16(y0, y1);
    } else {
      if (n < rows) data[0] = __float2bfloat16_rn(y0);
      if (n + 1 < rows) data[1] = __float2bfloat16_rn(y1);
    }
  }
}

// Two sums of column `row`: outputs n, n + 1, or gate and up of output n for kSwiGlu. cos/sin and cache_token belong to
// kQkv.
template <OutputKind kKind>
__device__ __forceinline__ void FinishAs(const OutputRef& out, int rows, int row, int n, float y0, float y1,
                                         const float* cos, const float* sin, int64_t cache_token) {
  if constexpr (kKind == OutputKind::kStore || kKind == OutputKind::kHead) {
    StorePair(out, rows, row, n, y0, y1);
  } else if constexpr (kKind == OutputKind::kGelu) {
    StorePair(out, rows, row, n, GeluExact(y0), GeluExact(y1));
  } else if constexpr (kKind == OutputKind::kAddTo) {
    float* data = static_cast<float*>(out.data) + row * out.stride + n;
    if (n < rows) data[0] = __ldcg(data) + y0;
    if (n + 1 < rows) data[1] = __ldcg(data + 1) + y1;
  } else if constexpr (kKind == OutputKind::kSwiGlu) {
    if (n >= rows / 2) return;
    const float y = SiluProduct(y0, y1);
    const int64_t at = row * out.stride + n;
    if (out.element == Element::kF32) {
      static_cast<float*>(out.data)[at] = y;
    } else {
      static_cast<__nv_bfloat16*>(out.data)[at] = __float2bfloat16_rn(y);
    }
  } else {
    if (n >= rows) return;
    const int head_dim = out.cache.head_dim;
    const int head = n >> (head_dim == 64 ? 6 : 7), d = n & (head_dim - 1);  // head sizes are 64 or 128
    float r0 = RoundBf16(y0), r1 = RoundBf16(y1);
    if (head < out.heads + out.cache.kv_heads) Rotate(r0, r1, cos[d / 2], sin[d / 2]);
    const uint32_t packed = PackBf16(r0, r1);
    *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(out.data) + row * out.stride + n) = packed;
    if (out.store_cache && head >= out.heads) {
      const int64_t token =
          cache_token + static_cast<int64_t>(head - out.heads) * kPageTokens;  // k heads, then v heads
      *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(out.cache.data) + token * head_dim + d) = packed;
    }
  }
}
__device__ __forceinline__ void Finish(const OutputRef& out, int rows, int row, int n, float y0, float y1,
                                       const float* cos, const float* sin, int64_t cache_token) {
  switch (out.kind) {
    case OutputKind::kStore:
    case OutputKind::kHead:
      return FinishAs<OutputKind::kStore>(out, rows, row, n, y0, y1, cos, sin, cache_token);
    case OutputKind::kGelu:
      return FinishAs<OutputKind::kGelu>(out, rows, row, n, y0, y1, cos, sin, cache_token);
    case OutputKind::kAddTo:
      return FinishAs<OutputKind::kAddTo>(out, rows, row, n, y0, y1, cos, sin, cache_token);
    case OutputKind::kSwiGlu:
      return FinishAs<OutputKind::kSwiGlu>(out, rows, row, n, y0, y1, cos, sin, cache_token);
    case OutputKind::kQkv:
      return FinishAs<OutputKind::kQkv>(out, rows, row, n, y0, y1, cos, sin, cache_token);
  }
}

// The last block of a head: hands the winners out, clears the scratch for the next call, wakes the host.
template <typename Sync>
__device__ __forceinline__ void FinishHead(const OutputRef& out, int rows, int threads, int thread, Sync&& sync) {
  for (int r = thread; r < rows; r += threads) {
    const unsigned long long key = atomicExch(out.best + r, 0ull);
    const int token = static_cast<int>(~static_cast<uint32_t>(key));
    out.token[r] = token;
    // Of several rows of one session the last one counts.
    const int slot = out.row_slot[out.head_row[r]];
    if (r + 1 == rows || out.row_slot[out.head_row[r + 1]] != slot) out.slot_token[slot] = token;
    if (out.host_token) {
      *reinterpret_cast<volatile int32_t*>(out.host_token + r) = token;
      __threadfence_system();
    }
  }
  sync();
  if (thread == 0 && out.host_token) {
    const uint32_t sequence = *out.sequence + 1;
    *out.sequence = sequence;
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(out.host_flag) = sequence;
  }
}

}  // namespace voxrt::cuda_kernels
