// Linear for 1 to 8 rows: streams weights once. y[row, n] = epilogue(sum_k x[row, k] w[n, k]).
//
// The 16-row tiles of the weight are dealt evenly to one block per SM. Work items (tile, slice) of a block are dealt to
// its 16 warps; each warp streams the units of its items through a private ring in shared memory (cp.async), so no
// block barrier stands between load and MMA. The ring is filled, and the rest of the block's weights pulled into L2,
// before WaitForPrevious: weights are constants. Then the block stages x as bf16 (normalised where asked), each item is
// one chain of m16n8k16 MMAs with the weights as A, partial sums go to shared memory and are added in slice order, a
// batch of tiles at a time. Bound by weight bytes, or by dequantization (about 2.3 instructions a weight).
#pragma once

#include "backend/cuda/kernels/input.cuh"
#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

static_assert(kNormParts == kSmallWarps, "each warp sums one part of a norm");

// What an instance is made for: anything, or one kind of phase alone. Less code to fetch and fewer choices where the
// time of a phase is that of one pass through its code.
enum class SmallUse : int32_t { kAny, kNormQkv, kNormSwiGlu, kNormHead, kPlainAdd };
constexpr bool IsNorm(SmallUse use) {
  return use == SmallUse::kNormQkv || use == SmallUse::kNormSwiGlu || use == SmallUse::kNormHead;
}
constexpr OutputKind OutputOf(SmallUse use) {
  return use == SmallUse::kNormQkv      ? OutputKind::kQkv
         : use == SmallUse::kNormSwiGlu ? OutputKind::kSwiGlu
         : use == SmallUse::kNormHead   ? OutputKind::kHead
                                        : OutputKind::kAddTo;
}
// Vectors of a row that a lane takes.
__host__ __device__ constexpr int NormSteps(int cols) { return (NormPartCols(cols) / 4 + 31) / 32; }
// Whether the rows of a norm stay in registers between the sum and its use.
__host__ __device__ constexpr bool NormFitsRegisters(int cols, int rows) {
  const int steps = NormSteps(cols);
  return steps <= 2 && rows * steps <= 4;
}
// Whether a phase may run on the instance for `use`.
inline bool FitsUse(const LinearParams& p, SmallUse use) {
  const InputRef& in = p.input;
  if (IsNorm(use) && !NormFitsRegisters(p.weight.cols, p.rows)) return false;
  switch (use) {
    case SmallUse::kAny:
      return true;
    case SmallUse::kNormQkv:
      return in.kind == InputKind::kNorm && p.output.kind == OutputKind::kQkv;
    case SmallUse::kNormSwiGlu:
      return in.kind == InputKind::kNorm && p.output.kind == OutputKind::kSwiGlu;
    case SmallUse::kNormHead:
      return in.kind == InputKind::kNorm && p.output.kind == OutputKind::kHead;
    case SmallUse::kPlainAdd:
      return in.kind == InputKind::kPlain && in.aligned && in.element == Element::kBf16 &&
             p.output.kind == OutputKind::kAddTo;
  }
  return false;
}

// The gain of this thread's columns, and the delay scales of a single row: constants, read before the wait.
struct NormConstants {
  float4 gain[2], delay[2];
};
__device__ __forceinline__ NormConstants LoadNormConstants(const LinearParams& p, int warp, int lane) {
  const InputRef& in = p.input;
  const int cols = p.weight.cols, part_cols = NormPartCols(cols);
  const int begin = warp * part_cols, end = min(begin + part_cols, cols);
  const float* const delay =
      in.scales && p.rows == 1 ? in.scales + static_cast<int64_t>(in.scale_row[0]) * cols : nullptr;
  NormConstants c;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int col = begin + (lane + i * 32) * 4;
    c.gain[i] = {0.0f, 0.0f, 0.0f, 0.0f}, c.delay[i] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (col < end) {
      c.gain[i] = __ldg(reinterpret_cast<const float4*>(in.gain + col));
      if (delay) c.delay[i] = __ldg(reinterpret_cast<const float4*>(delay + col));
    }
  }
  return c;
}

// Gain and delay scales are constants: on their way to L2 before the wait.
__device__ __forceinline__ void PrefetchNormConstants(const LinearParams& p, int thread) {
  const InputRef& in = p.input;
  const int lines = (p.weight.cols * 4 + 127) / 128;
  if (in.kind != InputKind::kNorm || thread >= lines) return;
  PrefetchL2(reinterpret_cast<const char*>(in.gain) + thread * 128);
  if (!in.scales) return;
  for (int row = 0; row < p.rows; ++row)
    PrefetchL2(reinterpret_cast<const char*>(in.scales + static_cast<int64_t>(in.scale_row[row]) * p.weight.cols) +
               thread * 128);
}

// Normalised rows as bf16 at x. Up to four vectors of a thread stay in registers between the sum and its use.
template <SmallUse kUse, int kSteps>
__device__ __forceinline__ void StageNorm(const LinearParams& p, const NormConstants& constants, char* x, int x_stride,
                                          float* parts, int warp, int lane) {
  constexpr bool kConstantsRead = IsNorm(kUse);
  const InputRef& in = p.input;
  const int cols = p.weight.cols, rows = p.rows;
  const int part_cols = NormPartCols(cols), begin = warp * part_cols, end = min(begin + part_cols, cols);
  const int steps = kSteps > 0 ? kSteps : NormSteps(cols);
  const bool scaled = (kUse == SmallUse::kAny || kUse == SmallUse::kNormSwiGlu) && in.scales != nullptr;
  const bool cached = kConstantsRead || NormFitsRegisters(cols, rows);
  float4 cache[4], gain0{}, gain1{};
  if (cached) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = steps == 1 ? i : i / 2, col = begin + (lane + (steps == 1 ? 0 : i % 2) * 32) * 4;
      cache[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (row < rows && col < end)
        cache[i] = __ldcg(
            reinterpret_cast<const float4*>(static_cast<const float*>(in.data) + InputRow(in, row) * in.stride + col));
    }
    float4 gain[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int col = begin + (lane + i * 32) * 4;
      gain[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (kConstantsRead) {
        gain[i] = constants.gain[i];
      } else if (i < steps && col < end) {
        gain[i] = __ldg(reinterpret_cast<const float4*>(in.gain + col));
      }
    }
    gain0 = gain[0], gain1 = gain[1];
    float sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool second = steps == 2 && i % 2 == 1;
      sum[i] = SquareSum(cache[i], second ? sum[i > 0 ? i - 1 : 0] : 0.0f);
    }
    float row_sum[4];
#pragma unroll
    for (int row = 0; row < 4; ++row) row_sum[row] = steps == 1 ? sum[row] : row < 2 ? sum[2 * row + 1] : 0.0f;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
      for (int row = 0; row < 4; ++row) row_sum[row] += __shfl_xor_sync(0xffffffffu, row_sum[row], offset);
    }
#pragma unroll
    for (int row = 0; row < 4; ++row)
      if (lane == 0 && row < rows) parts[row * kNormParts + warp] = row_sum[row];
  } else {
    for (int row = 0; row < rows; ++row) {
      float sum = 0.0f;
      const float* source = static_cast<const float*>(in.data) + InputRow(in, row) * in.stride;
#pragma unroll 2
      for (int col = begin + lane * 4; col < end; col += 128)
        sum = SquareSum(__ldcg(reinterpret_cast<const float4*>(source + col)), sum);
      sum = WarpSum(sum);
      if (lane == 0) parts[row * kNormParts + warp] = sum;
    }
  }
  __syncthreads();
  // Lane r computes the scale of row r.
  const float my_scale = NormScale(parts + min(lane, rows - 1) * kNormParts, cols, in.epsilon);
  auto store = [&](int row, int col, float4 v, float scale, float4 gain, float4 delay) {
    v = Mul4(Scale4(v, scale), gain);
    if (scaled) v = Mul4(v, delay);
    *reinterpret_cast<uint2*>(x + row * x_stride + col * 2) = {PackBf16(v.x, v.y), PackBf16(v.z, v.w)};
  };
  auto delay_of = [&](int row, int col) -> float4 {
    if (!scaled) return {1.0f, 1.0f, 1.0f, 1.0f};
    return __ldg(reinterpret_cast<const float4*>(in.scales + static_cast<int64_t>(in.scale_row[row]) * cols + col));
  };
  if (cached) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = steps == 1 ? i : i / 2, step = steps == 1 ? 0 : i % 2, col = begin + (lane + step * 32) * 4;
      if (row >= rows) break;
      const float scale = __shfl_sync(0xffffffffu, my_scale, row);
      if (col < end)
        store(row, col, cache[i], scale, step == 0 ? gain0 : gain1,
              kConstantsRead && rows == 1 ? (step == 0 ? constants.delay[0] : constants.delay[1]) : delay_of(row, col));
    }
  } else {
    for (int row = 0; row < rows; ++row) {
      const float* source = static_cast<const float*>(in.data) + InputRow(in, row) * in.stride;
      const float scale = __shfl_sync(0xffffffffu, my_scale, row);
#pragma unroll 2
      for (int col = begin + lane * 4; col < end; col += 128)
        store(row, col, __ldcg(reinterpret_cast<const float4*>(source + col)), scale,
              __ldg(reinterpret_cast<const float4*>(in.gain + col)), delay_of(row, col));
    }
  }
}

// Stages rows of x as bf16 at `x`; inputs beyond cols are zero.
template <SmallUse kUse, int kSteps>
__device__ __forceinline__ void StageInput(const LinearParams& p, const NormConstants& constants, char* x, int x_stride,
                                           float* parts, int thread) {
  const InputRef& in = p.input;
  const int cols = p.weight.cols, padded = p.weight.units * kUnitCols, rows = p.rows;
  constexpr bool kPlain = kUse == SmallUse::kPlainAdd;
  if (IsNorm(kUse) || (!kPlain && in.kind == InputKind::kNorm)) {
    StageNorm<kUse, kSteps>(p, constants, x, x_stride, parts, thread / 32, thread % 32);
    if (padded > cols) {
#pragma unroll 1
      for (int row = 0; row < rows; ++row)
#pragma unroll 1
        for (int col = cols + thread; col < padded; col += kSmallThreads)
          *reinterpret_cast<uint16_t*>(x + row * x_stride + col * 2) = 0;
    }
  } else if (kPlain || (in.aligned && in.kind == InputKind::kPlain && in.element == Element::kBf16)) {
    // Straight to shared memory. Waiting for all copies also waits for the ring, which began long before.
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
      const char* const from = static_cast<const char*>(in.data) + InputRow(in, row) * in.stride * 2;
#pragma unroll 1
      for (int chunk = thread; chunk * 8 < cols; chunk += kSmallThreads)
        CopyAsync16(SharedAddress(x) + row * x_stride + chunk * 16, from + chunk * 16);
#pragma unroll 1
      for (int chunk = cols / 8 + thread; chunk * 8 < padded; chunk += kSmallThreads)
        *reinterpret_cast<uint4*>(x + row * x_stride + chunk * 16) = {0, 0, 0, 0};
    }
    CommitAsync();
    WaitAsync<0>();
  } else if (in.aligned) {
    // Flat over rows and 16-byte chunks, several loads on their way at once.
    const int chunks = padded / 8;
    constexpr int kBatch = 4;
    int row = 0, chunk = thread;
    auto wrap = [&] {
      while (chunk >= chunks) chunk -= chunks, ++row;
    };
    wrap();
    while (row < rows) {
      uint4 v[kBatch];
      int to[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        to[i] = row < rows ? row * x_stride + chunk * 16 : -1;
        v[i] = {0, 0, 0, 0};
        if (row < rows && chunk * 8 < cols) v[i] = InputAt8(in, row, chunk * 8);
        chunk += kSmallThreads;
        wrap();
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (to[i] >= 0) *reinterpret_cast<uint4*>(x + to[i]) = v[i];
    }
  } else {
    for (int row = 0; row < rows; ++row)
      for (int col = thread; col < padded; col += kSmallThreads)
        *reinterpret_cast<__nv_bfloat16*>(x + row * x_stride + col * 2) =
            __float2bfloat16_rn(col < cols ? InputAt(in, row, col) : 0.0f);
  }
}

template <WeightFormat kFormat, int kSlots, SmallUse kUse = SmallUse::kAny, int kSteps = 0>
__global__ void __launch_bounds__(kSmallThreads, 2) LinearSmallKernel(const __grid_constant__ LinearParams p) {
  VOXRT_DYNAMIC_SHARED(smem);
  constexpr int kUnit = UnitBytes(kFormat);
  const SmallPlan& l = p.small;
  constexpr bool kAny = kUse == SmallUse::kAny;
  const OutputKind output_kind = kAny ? p.output.kind : OutputOf(kUse);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int units = p.weight.units, slice_units = l.slice_units, slices = l.slices;
  const int first_tile = blockIdx.x * l.block_tiles + min(static_cast<int>(blockIdx.x), l.block_tiles_rest);
  const int tiles = l.block_tiles + (static_cast<int>(blockIdx.x) < l.block_tiles_rest ? 1 : 0);
  LaunchDependents();
  Mark(p.trace, 0);
  if (tiles == 0) {  // keeps its place on the SM until the phase begins
    PrefetchShare(p.prefetch);
    WaitForPrevious();
    return;
  }
  char* const ring = smem + warp * kSlots * kUnit;
  const int items = tiles * slices;
  auto tile_of = [&](int item) { return static_cast<int>((static_cast<uint32_t>(item) * l.slice_reciprocal) >> 20); };

  // The units of a warp in order: those of its items i = warp, warp + 16, ...; item i is slice i % slices of tile i /
  // slices.
  const uint64_t policy = EvictFirstPolicy();
  int produce_item = warp, produce_left = 0, produce_slot = 0;
  const uint8_t* produce_from = nullptr;
  auto open = [&] {
    const int tile = tile_of(produce_item), slice = produce_item - tile * slices, begin = slice * slice_units;
    produce_from = p.weight.data + UnitAt(first_tile + tile, begin, units) * kUnit + lane * 16;
    produce_left = min(slice_units, units - begin);
  };
  if (produce_item < items) open();
  auto produce = [&] {
    if (produce_left > 0) {
      const uint32_t to = SharedAddress(ring) + produce_slot * kUnit + lane * 16;
#pragma unroll
      for (int i = 0; i < kUnit / 512; ++i) CopyAsync16Policy(to + i * 512, produce_from + i * 512, policy);
      if (lane < kUnit % 512 / 16) CopyAsync16Policy(to + kUnit / 512 * 512, produce_from + kUnit / 512 * 512, policy);
      produce_from += kTileGroup * kUnit;
      if (++produce_slot == kSlots) produce_slot = 0;
      if (--produce_left == 0) {
        produce_item += kSmallWarps;
        if (produce_item < items) open();
      }
    }
    CommitAsync();
  };
#pragma unroll 1
  for (int i = 0; i < kSlots; ++i) produce();

  PrefetchShare(p.prefetch);
  // Constants of prologue and epilogue.
  if (thread < 4) reinterpret_cast<uint32_t*>(smem + l.x)[thread] = 0;
  if (kAny) PrefetchNormConstants(p, thread);
  NormConstants constants{};
  if constexpr (IsNorm(kUse)) constants = LoadNormConstants(p, warp, lane);
  float* const bias = reinterpret_cast<float*>(smem + l.bias);
  if (p.weight.bias)
#pragma unroll 1
    for (int i = thread; i < tiles * kTileRows; i += kSmallThreads)
      bias[i] = __ldg(p.weight.bias + first_tile * kTileRows + i);
  float* const rope = reinterpret_cast<float*>(smem + l.rope);
  int64_t* const cache_token = reinterpret_cast<int64_t*>(smem + l.token);
  const int half = p.output.cache.head_dim / 2;
  if (output_kind == OutputKind::kQkv) {
#pragma unroll 1
    for (int row = 0; row < p.rows; ++row)
#pragma unroll 1
      for (int d = thread; d < half; d += kSmallThreads) {
        rope[row * 2 * half + d] = __ldg(p.output.cos + row * half + d);
        rope[row * 2 * half + half + d] = __ldg(p.output.sin + row * half + d);
      }
    if (p.output.store_cache && thread < p.rows)
      cache_token[thread] = CacheToken(p.output.cache, p.output.row_slot[thread], p.output.row_index[thread]);
  }

  WaitForPrevious();
  Mark(p.trace, 1);
  const int pair_of_thread = static_cast<int>((static_cast<uint32_t>(thread) * l.column_reciprocal) >> 20);
  const int column = thread - pair_of_thread * p.rows;
  const int pairs_per_pass = static_cast<int>((static_cast<uint32_t>(kSmallThreads) * l.column_reciprocal) >> 20);
  // The first residual pair of this thread travels while the sums are made.
  float residual[2] = {0.0f, 0.0f};
  const int residual_n = first_tile * kTileRows + 2 * pair_of_thread;
  const bool has_residual = output_kind == OutputKind::kAddTo && pair_of_thread < min(p.batch_tiles, tiles) * 8 &&
                            pair_of_thread < pairs_per_pass;
  if (has_residual) {
    const float* data = static_cast<const float*>(p.output.data) + column * p.output.stride + residual_n;
    if (residual_n < p.weight.rows) residual[0] = __ldcg(data);
    if (residual_n + 1 < p.weight.rows) residual[1] = __ldcg(data + 1);
  }
  StageInput<kUse, kSteps>(p, constants, smem + l.x + 16, l.x_stride, reinterpret_cast<float*>(smem + l.parts), thread);
  __syncthreads();
  Mark(p.trace, 2);
  if (kAny && p.input.kind == InputKind::kConv) {
    __shared__ uint32_t arrived;
    if (thread == 0) arrived = atomicAdd(p.input.counter, 1u);
    __syncthreads();
    if (arrived == static_cast<uint32_t>(min(static_cast<int>(gridDim.x), p.weight.tiles)) - 1) {
      const int plan_rows = p.rows * p.input.conv_stride / p.input.frames_per_row;
      for (int row = 0; row < plan_rows; row += p.input.row_count[row])
        StoreConvTail(p.input, row, kSmallThreads, thread);
      if (thread == 0) *p.input.counter = 0;
    }
  }

  // B fragments by ldmatrix: matrix m = lane / 8 covers inputs 8 m.. of 32, its row lane % 8 is a row of x (or the zero
  // bytes).
  const uint32_t x_base = SharedAddress(smem + l.x);
  const bool row_exists = lane % 8 < p.rows;
  const uint32_t x_row = row_exists ? x_base + 16 + (lane % 8) * l.x_stride + (lane / 8) * 16 : x_base;
  const uint32_t x_step = row_exists ? 64u : 0u;

  int slot = 0, item = warp;
  unsigned long long best = 0;
#pragma unroll 1
  for (int batch = 0; batch * p.batch_tiles < tiles; ++batch) {
    const int batch_first = batch * p.batch_tiles;
    const int batch_tiles = min(p.batch_tiles, tiles - batch_first);
    float* const partial = reinterpret_cast<float*>(smem + l.partial) + (batch & 1) * l.partial_floats;
    const int end_item = (batch_first + batch_tiles) * slices;
#pragma unroll 1
    for (; item < end_item; item += kSmallWarps) {
      const int tile = tile_of(item), slice = item - tile * slices;
      const int begin = slice * slice_units, count = min(slice_units, units - begin);
      float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      uint32_t x_unit = x_row + begin * 4 * x_step;
#pragma unroll 1
      for (int unit = 0; unit < count; ++unit) {
        WaitAsync<kSlots - 1>();
        __syncwarp();
        uint32_t b[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) LoadMatrix4(b[j], x_unit + j * x_step);
        ForEachFragment<kFormat>(
            ring + slot * kUnit, lane,
            [&] {
              __syncwarp();
              produce();
            },
            [&](int j, const uint32_t(&a)[2][4]) {
              Mma(acc, a[0][0], a[0][1], a[0][2], a[0][3], b[j][0], b[j][1]);
              Mma(acc, a[1][0], a[1][1], a[1][2], a[1][3], b[j][2], b[j][3]);
            });
        x_unit += 4 * x_step;
        if (++slot == kSlots) slot = 0;
      }
      const int g = lane / 4, c = 2 * (lane % 4);
      float* const at = partial + (slice * batch_tiles + tile - batch_first) * p.rows * kTileRows;
      if (c < p.rows) at[c * kTileRows + g] = acc[0], at[c * kTileRows + g + 8] = acc[2];
      if (c + 1 < p.rows) at[(c + 1) * kTileRows + g] = acc[1], at[(c + 1) * kTileRows + g + 8] = acc[3];
    }
    __syncthreads();
    Mark(p.trace, 3);
    if (pair_of_thread < pairs_per_pass) {
#pragma unroll 1
      for (int pair = pair_of_thread; pair < batch_tiles * 8; pair += pairs_per_pass) {
        const int tile = pair / 8, i = pair % 8;
        const bool swiglu = output_kind == OutputKind::kSwiGlu;
        const int r0 = swiglu ? i : 2 * i, r1 = swiglu ? i + 8 : 2 * i + 1;
        const float* at = partial + (tile * p.rows + column) * kTileRows;
        const int slice_step = batch_tiles * p.rows * kTileRows;
        float y0 = at[r0], y1 = at[r1];
#pragma unroll 5
        for (int s = 1; s < l.group_slices; ++s) y0 += at[s * slice_step + r0], y1 += at[s * slice_step + r1];
#pragma unroll 1
        for (int first = l.group_slices; first < slices; first += l.group_slices) {
          float sum0 = at[first * slice_step + r0], sum1 = at[first * slice_step + r1];
          const int last = min(first + l.group_slices, slices);
#pragma unroll 3
          for (int s = first + 1; s < last; ++s) sum0 += at[s * slice_step + r0], sum1 += at[s * slice_step + r1];
          y0 += sum0, y1 += sum1;
        }
        if (p.weight.bias)
          y0 += bias[(batch_first + tile) * kTileRows + r0], y1 += bias[(batch_first + tile) * kTileRows + r1];
        const int global_tile = first_tile + batch_first + tile;
        const int n = swiglu ? global_tile * 8 + i : global_tile * kTileRows + r0;
        if (output_kind == OutputKind::kHead) {
          if (n < p.weight.rows) best = max(best, ArgMaxKey(y0, n));
          if (n + 1 < p.weight.rows) best = max(best, ArgMaxKey(y1, n + 1));
          if (!p.output.data) continue;
        }
        if (has_residual && pair == pair_of_thread && batch == 0) {
          float* data = static_cast<float*>(p.output.data) + column * p.output.stride + n;
          if (n < p.weight.rows) data[0] = residual[0] + y0;
          if (n + 1 < p.weight.rows) data[1] = residual[1] + y1;
          continue;
        }
        const float *const cos = rope + column * 2 * half, *const sin = cos + half;
        if constexpr (kAny) {
          Finish(p.output, p.weight.rows, column, n, y0, y1, cos, sin, cache_token[column]);
        } else {
          FinishAs<OutputOf(kUse)>(p.output, p.weight.rows, column, n, y0, y1, cos, sin, cache_token[column]);
        }
      }
    }
  }
  Mark(p.trace, 4);
  if (output_kind == OutputKind::kHead) {
    auto* winners = reinterpret_cast<unsigned long long*>(smem + l.parts + kSmallRows * kNormParts * 4);
    __shared__ uint32_t finished;
    if (thread < p.rows) winners[thread] = 0;
    __syncthreads();
    if (pair_of_thread < pairs_per_pass) atomicMax(winners + column, best);
    __syncthreads();
    if (thread < p.rows) atomicMax(p.output.best + thread, winners[thread]);
    __syncthreads();
    if (thread == 0) finished = CountArrival(p.output.counter);
    __syncthreads();
    if (finished == static_cast<uint32_t>(min(static_cast<int>(gridDim.x), p.weight.tiles)) - 1) {
      if (thread == 0) *p.output.counter = 0;
      FinishHead(p.output, p.rows, kSmallThreads, thread, [] { __syncthreads(); });
    }
  }
}

}  // namespace voxrt::cuda_kernels
