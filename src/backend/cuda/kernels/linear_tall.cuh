// Linear for more than 8 rows: the same sums as the streaming kernel (units in k order inside a slice, slices in
// order), arranged as a tiled product. x is bf16, padded to whole units of K.
//
// Block: kWarpRows x 16 weight rows by kColumns rows of x; warp (m, n): one 16-row tile by kN8 groups of 8 columns. K
// runs in stages of one unit (128), weights and x through a cp.async pipeline; weights of the first stages are fetched
// before WaitForPrevious. A warp closes its accumulators at slice borders, so totals are ((s0 + s1) + s2) + ... exactly
// as there. With split > 1 blocks along K take whole slices and leave them in a workspace; the last block of a tile
// adds them in slice order.
#pragma once

#include "backend/cuda/kernels/input.cuh"
#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

inline constexpr int kTallThreads = 256;

template <WeightFormat kFormat, int kWarpRows, int kN8, int kStages>
struct TallShape {
  static constexpr int kWarpColumns = 8 / kWarpRows;
  static constexpr int kColumns = kWarpColumns * kN8 * 8;
  static constexpr int kRows = kWarpRows * kTileRows;
  static constexpr int kUnit = UnitBytes(kFormat);
  static constexpr int kStageBytes = kWarpRows * kUnit + kColumns * kUnitCols * 2;
  static constexpr int kOutStride = kRows + 1;
  static constexpr int kPipeBytes = kStages * kStageBytes;
  static constexpr int kOutBytes = kColumns * kOutStride * 4;
  static constexpr int kShared = (kPipeBytes > kOutBytes ? kPipeBytes : kOutBytes) + kColumns * 16;
};

template <WeightFormat kFormat, int kWarpRows, int kN8, int kStages>
__global__ void __launch_bounds__(kTallThreads, 2) LinearTallKernel(const __grid_constant__ LinearParams p) {
  using Shape = TallShape<kFormat, kWarpRows, kN8, kStages>;
  VOXRT_DYNAMIC_SHARED(smem);
  constexpr int kUnit = Shape::kUnit, kColumns = Shape::kColumns;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int warp_row = warp % kWarpRows, warp_column = warp / kWarpRows;
  const int units = p.weight.units, slice_units = SliceUnits(units), slices = SliceCount(units);
  const int first_tile = blockIdx.x * kWarpRows, first_row = blockIdx.y * kColumns;
  const int slices_per_block = (slices + p.split - 1) / p.split;
  const int first_slice = blockIdx.z * slices_per_block, end_slice = min(first_slice + slices_per_block, slices);
  const int first_unit = first_slice * slice_units, end_unit = min(end_slice * slice_units, units);
  const uint32_t shared = SharedAddress(smem);
  LaunchDependents();
  Mark(p.trace, 0);

  auto load_weights = [&](int unit, int stage) {
    constexpr int kChunks = kUnit / 16;
    for (int i = thread; i < kWarpRows * kChunks; i += kTallThreads) {
      const int tile = i / kChunks, chunk = i % kChunks;
      const bool exists = first_tile + tile < p.weight.tiles;
      const uint8_t* source =
          p.weight.data + (static_cast<int64_t>(exists ? first_tile + tile : 0) * units + unit) * kUnit + chunk * 16;
      CopyAsync16(shared + stage * Shape::kStageBytes + tile * kUnit + chunk * 16, source, exists ? 16 : 0);
    }
  };
  auto load_input = [&](int unit, int stage) {
    const auto* data = static_cast<const __nv_bfloat16*>(p.input.data);
    for (int i = thread; i < kColumns * 16; i += kTallThreads) {
      const int row = i / 16, chunk = i % 16;
      const bool exists = first_row + row < p.rows;
      const __nv_bfloat16* source =
          data + (exists ? first_row + row : 0) * p.input.stride + unit * kUnitCols + chunk * 8;
      CopyAsync16(shared + stage * Shape::kStageBytes + kWarpRows * kUnit + row * 256 + (chunk ^ (row & 7)) * 16,
                  source, exists ? 16 : 0);
    }
  };
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i)
    if (first_unit + i < end_unit) load_weights(first_unit + i, i);
  WaitForPrevious();
  Mark(p.trace, 1);
  Mark(p.trace, 2);
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (first_unit + i < end_unit) load_input(first_unit + i, i);
    CommitAsync();
  }

  float acc[kN8][4], total[kN8][4];
#pragma unroll
  for (int j = 0; j < kN8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[j][i] = total[j][i] = 0.0f;
  // Partials of a split: [block tile][slice][thread][value].
  float* const workspace =
      p.workspace + ((static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * slices) * (kTallThreads * kN8 * 4) +
      thread;

  const int column_in_matrix = lane % 8, matrix = lane / 8;
  int slice = first_slice;
#pragma unroll 1
  for (int unit = first_unit, stage = 0; unit < end_unit; ++unit) {
    WaitAsync<kStages - 2>();
    __syncthreads();
    const int next = unit + kStages - 1;
    int next_stage = stage + kStages - 1;
    if (next_stage >= kStages) next_stage -= kStages;
    if (next < end_unit) {
      load_weights(next, next_stage);
      load_input(next, next_stage);
    }
    CommitAsync();
    const uint32_t base = shared + stage * Shape::kStageBytes;
    const uint32_t x_base = base + kWarpRows * kUnit + warp_column * kN8 * 8 * 256;
    ForEachFragment<kFormat>(
        smem + stage * Shape::kStageBytes + warp_row * kUnit, lane, [] {},
        [&](int j, const uint32_t(&a)[2][4]) {
#pragma unroll
          for (int n = 0; n < kN8; ++n) {
            const int row = n * 8 + column_in_matrix;
            uint32_t b[4];
            LoadMatrix4(b, x_base + row * 256 + ((j * 4 + matrix) ^ (row & 7)) * 16);
            Mma(acc[n], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
            Mma(acc[n], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
          }
        });
    if (++stage == kStages) stage = 0;
    if (unit + 1 == min((slice + 1) * slice_units, units)) {
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (p.split > 1) {
            __stcg(workspace + (static_cast<int64_t>(slice) * kN8 * 4 + n * 4 + i) * kTallThreads, acc[n][i]);
          } else {
            total[n][i] = slice == 0 ? acc[n][i] : total[n][i] + acc[n][i];
          }
          acc[n][i] = 0.0f;
        }
      ++slice;
    }
  }
  WaitAsync<0>();
  Mark(p.trace, 3);
  if (p.split > 1) {
    __shared__ uint32_t arrived;
    __threadfence();
    __syncthreads();
    uint32_t* const counter = p.split_counter + blockIdx.y * gridDim.x + blockIdx.x;
    if (thread == 0) arrived = atomicAdd(counter, 1u);
    __syncthreads();
    if (arrived != gridDim.z - 1) return;
    __threadfence();
    if (thread == 0) *counter = 0;
#pragma unroll
    for (int n = 0; n < kN8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) total[n][i] = __ldcg(workspace + (n * 4 + i) * kTallThreads);
        // Loads of several slices travel together; the additions stay in order.
#pragma unroll 3
    for (int s = 1; s < slices; ++s) {
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          total[n][i] += __ldcg(workspace + (static_cast<int64_t>(s) * kN8 * 4 + n * 4 + i) * kTallThreads);
    }
  }
  __syncthreads();

  float* const out = reinterpret_cast<float*>(smem);
  char* const after = smem + (Shape::kShared - kColumns * 16);
  auto* const cache_token = reinterpret_cast<int64_t*>(after);
  auto* const winners = reinterpret_cast<unsigned long long*>(after + kColumns * 8);
  const int g = lane / 4, c = lane % 4;
#pragma unroll
  for (int n = 0; n < kN8; ++n) {
    float* const at = out + ((warp_column * kN8 + n) * 8 + 2 * c) * Shape::kOutStride + warp_row * kTileRows + g;
    at[0] = total[n][0], at[Shape::kOutStride] = total[n][1], at[8] = total[n][2],
    at[Shape::kOutStride + 8] = total[n][3];
  }
  if (thread < kColumns) {
    winners[thread] = 0;
    if (p.output.kind == OutputKind::kQkv && p.output.store_cache && first_row + thread < p.rows)
      cache_token[thread] =
          CacheToken(p.output.cache, p.output.row_slot[first_row + thread], p.output.row_index[first_row + thread]);
  }
  __syncthreads();
  const bool swiglu = p.output.kind == OutputKind::kSwiGlu, head = p.output.kind == OutputKind::kHead;
  const int half = p.output.cache.head_dim / 2;
  constexpr int kPairs = kWarpRows * 8;
  for (int i = thread; i < kColumns * kPairs; i += kTallThreads) {
    const int column = i / kPairs, pair = i % kPairs, tile = pair / 8, row = first_row + column;
    if (row >= p.rows || first_tile + tile >= p.weight.tiles) continue;
    const int r0 = tile * kTileRows + (swiglu ? pair % 8 : pair % 8 * 2), r1 = swiglu ? r0 + 8 : r0 + 1;
    float y0 = out[column * Shape::kOutStride + r0], y1 = out[column * Shape::kOutStride + r1];
    if (p.weight.bias)
      y0 += __ldg(p.weight.bias + first_tile * kTileRows + r0),
          y1 += __ldg(p.weight.bias + first_tile * kTileRows + r1);
    const int n = swiglu ? (first_tile + tile) * 8 + pair % 8 : first_tile * kTileRows + r0;
    if (head) {
      unsigned long long best = 0;
      if (n < p.weight.rows) best = ArgMaxKey(y0, n);
      if (n + 1 < p.weight.rows) best = max(best, ArgMaxKey(y1, n + 1));
      atomicMax(winners + column, best);
      if (!p.output.data) continue;
    }
    Finish(p.output, p.weight.rows, row, n, y0, y1, p.output.cos + static_cast<int64_t>(row) * half,
           p.output.sin + static_cast<int64_t>(row) * half, cache_token[column]);
  }
  Mark(p.trace, 4);
  if (head) {
    __shared__ uint32_t finished;
    __syncthreads();
    if (thread < kColumns && first_row + thread < p.rows) {
      atomicMax(p.output.best + first_row + thread, winners[thread]);
      __threadfence();
    }
    __syncthreads();
    if (thread == 0) finished = atomicAdd(p.output.counter, 1u);
    __syncthreads();
    if (finished == gridDim.x * gridDim.y - 1) {
      __threadfence();
      if (thread == 0) *p.output.counter = 0;
      FinishHead(p.output, p.rows, kTallThreads, thread);
    }
  }
}

}  // namespace voxrt::cuda_kernels
