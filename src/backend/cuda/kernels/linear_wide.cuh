// Linear for more than 8 rows: one warp a 16-row tile of the weight, each weight made bf16 once for up to
// 64 rows of x. Same sums as the streaming kernel: units in k order inside a slice, slices in order inside a group,
// groups in order.
//
// A block has as many warps as it has tiles (1 to 12, chosen so that all SMs are busy) and works off items (tiles, row
// block, group of slices) without draining its pipeline in between: stages of 128 inputs of each row and one unit of
// each tile, by cp.async. Sums leave through shared memory (linear_rows.cuh). Groups of one output are blocks apart:
// partials go through L2, and the last block adds them. Weights of the first stages are fetched before WaitForPrevious.
// Compute capability 9.0 has linear_hopper.cuh instead.
#pragma once

#include "backend/cuda/kernels/input.cuh"
#include "backend/cuda/kernels/linear_rows.cuh"
#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

template <WeightFormat kFormat, int kN8>
__global__ void __launch_bounds__(kWideMostWarps * 32, 1) LinearWideKernel(const __grid_constant__ LinearParams p) {
  if constexpr (!kBuildsWide) return;
  VOXRT_DYNAMIC_SHARED(dynamic_shared);
  constexpr int kUnit = UnitBytes(kFormat), kColumns = kN8 * 8, kStages = WideStages(kN8), kHalfBytes = kColumns * 128,
                kXBytes = 2 * kHalfBytes;
  const int thread = threadIdx.x, threads = blockDim.x, warps = threads / 32, warp = thread / 32, lane = thread % 32;
  const int units = p.weight.units, slice_units = p.wide.slice_units, group_units = p.wide.group_units;
  const int items = p.wide.items, tile_groups = p.wide.tile_groups, groups = p.wide.groups;
  const int first_item = blockIdx.x, item_step = gridDim.x;
  // Stages of x, [half of its inputs][column], swizzled (ptx.cuh), then stages of weights, then sums.
  const uint32_t align = -SharedAddress(dynamic_shared) & (kWideAlign - 1);
  char* const smem = dynamic_shared + align;
  const uint32_t shared = SharedAddress(dynamic_shared) + align;
  constexpr int kWeights = kStages * kXBytes;
  const int weight_stage = warps * kUnit;
  const int sums_stride = warps * kTileRows + kWideSumsPad;
  float* const sums = reinterpret_cast<float*>(smem + kWeights + kStages * weight_stage);
  __shared__ int64_t cache_token[kColumns];
  __shared__ uint32_t arrived;
  LaunchDependents();
  Mark(p.trace, 0);

  // Item i: tiles i % tile_groups, then the group of slices, then the row block.
  struct Item {
    int tile, group, row;
  };
  auto item_at = [&](int item) -> Item {
    const int rest = item / tile_groups, tile = (item - rest * tile_groups) * warps;
    return {tile, rest % groups, rest / groups * kColumns};
  };

  int make_item = first_item, make_unit = 0, make_end = 0, make_row = 0, make_place = 0;
  const uint8_t* make_from = nullptr;
  auto open = [&] {
    const Item at = item_at(make_item);
    make_unit = at.group * group_units;
    make_end = min(make_unit + group_units, units);
    make_row = at.row;
    make_from = p.weight.data + UnitAt(min(at.tile + warp, p.weight.tiles - 1), make_unit, units) * kUnit + lane * 16;
  };
  auto load_weights = [&](const uint8_t* from, int place) {
    const uint32_t to = shared + kWeights + place * weight_stage + warp * kUnit + lane * 16;
#pragma unroll
    for (int i = 0; i < kUnit / 512; ++i) CopyAsync16(to + i * 512, from + i * 512);
    if (lane < kUnit % 512 / 16) CopyAsync16(to + kUnit / 512 * 512, from + kUnit / 512 * 512);
  };
  const auto* const x = static_cast<const __nv_bfloat16*>(p.input.data) + thread % 16 * 8;
  auto load_input = [&](int place) {
    const int chunk = thread % 16;
    const uint32_t to = shared + place * kXBytes + chunk / 8 * kHalfBytes;
    const auto* const from = x + make_unit * kUnitCols;
    // Rows that do not exist repeat the last one; nothing is made of their sums.
    for (int row = thread / 16; row < kColumns; row += 2 * warps)
      CopyAsync16(to + row * 128 + (chunk % 8 ^ row % 8) * 16, from + min(make_row + row, p.rows - 1) * p.input.stride);
  };
  auto produce = [&](bool has_weights) {
    if (make_item < items) {
      if (!has_weights) load_weights(make_from, make_place);
      load_input(make_place);
      make_from += kTileGroup * kUnit;
      if (++make_place == kStages) make_place = 0;
      if (++make_unit == make_end) {
        make_item += item_step;
        if (make_item < items) open();
      }
    }
    CommitAsync();
  };
  open();
  const int ahead = min(kStages - 1, make_end - make_unit);
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) load_weights(make_from + i * kTileGroup * kUnit, i);
  PrefetchShare(p.prefetch);
  // Places of new keys and values, from the plan: constants.
  const bool stores_cache = p.output.kind == OutputKind::kQkv && p.output.store_cache;
  auto find_cache_tokens = [&](int row) {
    if (stores_cache && thread < kColumns && row + thread < p.rows)
      cache_token[thread] =
          CacheToken(p.output.cache, p.output.row_slot[row + thread], p.output.row_index[row + thread]);
  };
  find_cache_tokens(make_row);
  WaitForPrevious();
  Mark(p.trace, 1);
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) produce(i < ahead);
  Mark(p.trace, 2);

  // B fragments by ldmatrix: matrix lane / 8 covers inputs 8 (lane / 8) of 32, row lane % 8 of eight rows of x.
  const uint32_t x_lane = shared + lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16;
  int place = 0;
#pragma unroll 1
  for (int item = first_item; item < items; item += item_step) {
    const Item at = item_at(item);
    float acc[kN8][4], total[kN8][4];
#pragma unroll
    for (int n = 0; n < kN8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f, total[n][i] = -0.0f;  // -0 + x is x, whatever its sign
    const int end = min((at.group + 1) * group_units, units);
    int slice_left = slice_units;
#pragma unroll 1
    for (int unit = at.group * group_units; unit < end; ++unit) {
      WaitAsync<kStages - 2>();
      __syncthreads();
      produce(false);
      const uint32_t x_stage = x_lane + place * kXBytes;
      ForEachFragment<kFormat>(
          smem + kWeights + place * weight_stage + warp * kUnit, lane, [] {},
          [&](int j, const uint32_t(&a)[2][4]) {
            const uint32_t x_half = x_stage + j / 2 * kHalfBytes;
#pragma unroll
            for (int n = 0; n < kN8; ++n) {
              uint32_t b[4];
              LoadMatrix4(b, (x_half ^ j % 2 * 64) + n * 1024);
              Mma(acc[n], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
              Mma(acc[n], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
            }
          });
      if (++place == kStages) place = 0;
      if (--slice_left == 0 || unit + 1 == end) {
        slice_left = slice_units;
#pragma unroll
        for (int n = 0; n < kN8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) total[n][i] += acc[n][i], acc[n][i] = 0.0f;
      }
    }
    Mark(p.trace, 3);
    if (item != first_item) find_cache_tokens(at.row);
    // Lane: rows g and g + 8 of the tile, rows 2 c and 2 c + 1 of x in each eight.
    float* const own = sums + lane % 4 * 2 * sums_stride + warp * kTileRows + lane / 4;
#pragma unroll
    for (int n = 0; n < kN8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) own[(n * 8 + i % 2) * sums_stride + i / 2 * 8] = total[n][i];
    const RowBlock block{at.tile, warps, at.row, cache_token};
    if (groups == 1) {
      __syncthreads();
      FinishRows<RowsUse::kAny>(p, block, 0, kColumns, threads, [&](int column, int output, float(&y)[8]) {
        Load8(y, sums + column * sums_stride + output);
      });
      continue;
    }
    __syncthreads();
    const int output = at.row / kColumns * tile_groups + item % tile_groups, width = warps * kTileRows;
    float* const partials = p.workspace + static_cast<int64_t>(output) * groups * kColumns * width;
    for (int i = thread * 4; i < kColumns * width; i += threads * 4) {
      const int column = i / width;
      __stcg(reinterpret_cast<float4*>(partials + at.group * kColumns * width + i),
             *reinterpret_cast<const float4*>(sums + column * sums_stride + i - column * width));
    }
    __syncthreads();
    if (thread == 0) arrived = CountArrival(p.split_counter + output);
    __syncthreads();
    if (arrived != static_cast<uint32_t>(groups) - 1) continue;
    if (thread == 0) p.split_counter[output] = 0;
    FinishRows<RowsUse::kAny>(p, block, 0, kColumns, threads, [&](int column, int at_output, float(&y)[8]) {
      const float* const from = partials + column * width + at_output;
      LoadGlobal8(y, from);
      for (int s = 1; s < groups; ++s) AddGlobal8(y, from + s * kColumns * width);
    });
  }
  Mark(p.trace, 4);
  if (p.output.kind == OutputKind::kHead) {
    __syncthreads();
    if (thread == 0) arrived = CountArrival(p.output.counter);
    __syncthreads();
    if (arrived == gridDim.x - 1) {
      if (thread == 0) *p.output.counter = 0;
      FinishHead(p.output, p.rows, threads, thread, [] { __syncthreads(); });
    }
  }
}

}  // namespace voxrt::cuda_kernels
