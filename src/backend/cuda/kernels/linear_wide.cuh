// Linear for more than 8 rows: one warp a 16-row tile of the weight, each weight made bf16 once for up to
// 64 rows of x. Same sums as the streaming kernel: units in k order inside a slice, slices in order inside a group,
// groups in order.
//
// A block has as many warps as it has tiles (1 to 12, chosen so that all SMs are busy) and works off items (tiles, row
// block, group of slices) without draining its pipeline in between: stages of one unit of each tile and 128 inputs of
// each row, by cp.async. Results leave from registers. Groups of one output are blocks apart: partials go through L2,
// one per group, and the last block adds them in order. Weights of the first stages are fetched before WaitForPrevious.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/input.cuh"
#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

template <WeightFormat kFormat, int kN8>
__global__ void __launch_bounds__(kWideMostWarps * 32, 1) LinearWideKernel(const __grid_constant__ LinearParams p) {
  VOXRT_DYNAMIC_SHARED(smem);
  constexpr int kUnit = UnitBytes(kFormat), kColumns = kN8 * 8, kStages = WideStages(kN8),
                kXBytes = kColumns * kWideXStride;
  const int thread = threadIdx.x, threads = blockDim.x, warps = threads / 32, warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, c = lane % 4;
  const int units = p.weight.units, slice_units = p.wide.slice_units, group_units = p.wide.group_units;
  const int items = p.wide.items, tile_groups = p.wide.tile_groups, groups = p.wide.groups;
  const int stage_bytes = kXBytes + warps * kUnit;
  const uint32_t shared = SharedAddress(smem);
  __shared__ int64_t cache_token[kColumns];
  __shared__ unsigned long long winners[kColumns];
  __shared__ uint32_t arrived;
  LaunchDependents();
  Mark(p.trace, 0);

  // Item i: tiles i % tile_groups, then the group of slices, then the row block.
  struct Item {
    int tile, group, row;
  };
  auto item_at = [&](int item) -> Item {
    const int rest = item / tile_groups;
    return {(item - rest * tile_groups) * warps + warp, rest % groups, rest / groups * kColumns};
  };

  int make_item = blockIdx.x, make_unit = 0, make_end = 0, make_row = 0, make_place = 0;
  const uint8_t* make_from = nullptr;
  auto open = [&] {
    const Item at = item_at(make_item);
    make_unit = at.group * group_units;
    make_end = min(make_unit + group_units, units);
    make_row = at.row;
    make_from = p.weight.data + (static_cast<int64_t>(min(at.tile, p.weight.tiles - 1)) * units + make_unit) * kUnit +
                lane * 16;
  };
  auto load_weights = [&](const uint8_t* from, int place) {
    const uint32_t to = shared + place * stage_bytes + kXBytes + warp * kUnit + lane * 16;
#pragma unroll
    for (int i = 0; i < kUnit / 512; ++i) CopyAsync16(to + i * 512, from + i * 512);
    if (lane < kUnit % 512 / 16) CopyAsync16(to + kUnit / 512 * 512, from + kUnit / 512 * 512);
  };
  const auto* const x = static_cast<const __nv_bfloat16*>(p.input.data) + thread % 16 * 8;
  auto load_input = [&](int place) {
    uint32_t to = shared + place * stage_bytes + thread / 16 * kWideXStride + thread % 16 * 16;
    // Rows that do not exist repeat the last one; nothing is made of their sums.
    for (int row = thread / 16; row < kColumns; row += 2 * warps, to += 2 * warps * kWideXStride)
      CopyAsync16(to, x + min(make_row + row, p.rows - 1) * p.input.stride + make_unit * kUnitCols);
  };
  auto produce = [&](bool has_weights) {
    if (make_item < items) {
      if (!has_weights) load_weights(make_from, make_place);
      load_input(make_place);
      make_from += kUnit;
      if (++make_place == kStages) make_place = 0;
      if (++make_unit == make_end) {
        make_item += gridDim.x;
        if (make_item < items) open();
      }
    }
    CommitAsync();
  };
  open();
  const int ahead = min(kStages - 1, make_end - make_unit);
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) load_weights(make_from + i * kUnit, i);
  PrefetchShare(p.prefetch);
  WaitForPrevious();
  Mark(p.trace, 1);
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) produce(i < ahead);
  Mark(p.trace, 2);

  // B fragments by ldmatrix: matrix lane / 8 covers inputs 8 (lane / 8) of 32, row lane % 8 of eight rows of x.
  const uint32_t x_lane = shared + lane % 8 * kWideXStride + lane / 8 * 16;
  int place = 0;
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
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
      const uint32_t x_stage = x_lane + place * stage_bytes;
      ForEachFragment<kFormat>(
          smem + place * stage_bytes + kXBytes + warp * kUnit, lane, [] {},
          [&](int j, const uint32_t(&a)[2][4]) {
#pragma unroll
            for (int n = 0; n < kN8; ++n) {
              uint32_t b[4];
              LoadMatrix4(b, x_stage + n * 8 * kWideXStride + j * 64);
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
    if (groups > 1) {
      const int output = at.row / kColumns * tile_groups + item % tile_groups;
      float4* const partials =
          reinterpret_cast<float4*>(p.workspace) + static_cast<int64_t>(output) * groups * kN8 * threads + thread;
#pragma unroll
      for (int n = 0; n < kN8; ++n)
        __stcg(partials + (at.group * kN8 + n) * threads, float4{total[n][0], total[n][1], total[n][2], total[n][3]});
      __threadfence();
      __syncthreads();
      if (thread == 0) arrived = atomicAdd(p.split_counter + output, 1u);
      __syncthreads();
      if (arrived != static_cast<uint32_t>(groups) - 1) continue;
      __threadfence();
      if (thread == 0) p.split_counter[output] = 0;
#pragma unroll
      for (int n = 0; n < kN8; ++n) {
        const float4 v = __ldcg(partials + n * threads);
        total[n][0] = v.x, total[n][1] = v.y, total[n][2] = v.z, total[n][3] = v.w;
      }
#pragma unroll 1
      for (int s = 1; s < groups; ++s) {
        float4 v[kN8];
#pragma unroll
        for (int n = 0; n < kN8; ++n) v[n] = __ldcg(partials + (s * kN8 + n) * threads);
#pragma unroll
        for (int n = 0; n < kN8; ++n)
          total[n][0] += v[n].x, total[n][1] += v[n].y, total[n][2] += v[n].z, total[n][3] += v[n].w;
      }
    }

    // Lane: rows g and g + 8 of the tile, rows 2 c and 2 c + 1 of x in each eight.
    const bool head = p.output.kind == OutputKind::kHead, qkv = p.output.kind == OutputKind::kQkv;
    if (qkv && p.output.store_cache && thread < kColumns && at.row + thread < p.rows)
      cache_token[thread] =
          CacheToken(p.output.cache, p.output.row_slot[at.row + thread], p.output.row_index[at.row + thread]);
    if (head)
      for (int i = thread; i < kColumns; i += threads) winners[i] = 0;
    if (qkv || head) __syncthreads();
    const bool exists = at.tile < p.weight.tiles;
    if (exists && p.weight.bias) {
      const float low = __ldg(p.weight.bias + at.tile * kTileRows + g),
                  high = __ldg(p.weight.bias + at.tile * kTileRows + g + 8);
#pragma unroll
      for (int n = 0; n < kN8; ++n) total[n][0] += low, total[n][1] += low, total[n][2] += high, total[n][3] += high;
    }
    if (p.output.kind == OutputKind::kSwiGlu) {
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = at.row + n * 8 + 2 * c + i;
          if (exists && row < p.rows)
            FinishAs<OutputKind::kSwiGlu>(p.output, p.weight.rows, row, at.tile * 8 + g, total[n][i], total[n][2 + i],
                                          nullptr, nullptr, 0);
        }
      continue;
    }
    // Two lanes of neighbouring g trade, so that each has pairs of neighbouring outputs: of row 2 c where g is even, of
    // 2 c + 1 where it is odd.
    const int odd = g & 1, pair = at.tile * kTileRows + (g & ~1);
#pragma unroll
    for (int n = 0; n < kN8; ++n) {
      const float low = __shfl_xor_sync(0xffffffffu, odd ? total[n][0] : total[n][1], 4);
      const float high = __shfl_xor_sync(0xffffffffu, odd ? total[n][2] : total[n][3], 4);
      const float own_low = odd ? total[n][1] : total[n][0], own_high = odd ? total[n][3] : total[n][2];
      total[n][0] = odd ? low : own_low, total[n][1] = odd ? own_low : low;
      total[n][2] = odd ? high : own_high, total[n][3] = odd ? own_high : high;
    }
    const int first_row = at.row + 2 * c + odd;
    if (p.output.kind == OutputKind::kAddTo && p.wide.pairs) {
      // All residuals travel together.
      float* const data = static_cast<float*>(p.output.data) + pair;
      float2 old[kN8][2];
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (exists && first_row + n * 8 < p.rows && pair + 8 * i < p.weight.rows)
            old[n][i] = __ldcg(reinterpret_cast<const float2*>(data + (first_row + n * 8) * p.output.stride + 8 * i));
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (exists && first_row + n * 8 < p.rows && pair + 8 * i < p.weight.rows)
            *reinterpret_cast<float2*>(data + (first_row + n * 8) * p.output.stride + 8 * i) = {
                old[n][i].x + total[n][2 * i], old[n][i].y + total[n][2 * i + 1]};
      continue;
    }
    if (head) {
#pragma unroll
      for (int n = 0; n < kN8; ++n) {
        const bool wanted = exists && first_row + n * 8 < p.rows;
        unsigned long long best = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int output = pair + i % 2 + i / 2 * 8;
          if (wanted && output < p.weight.rows) best = max(best, ArgMaxKey(total[n][i], output));
        }
        best = max(best, __shfl_xor_sync(0xffffffffu, best, 8));
        best = max(best, __shfl_xor_sync(0xffffffffu, best, 16));
        if (wanted && g < 2) atomicMax(winners + (first_row + n * 8 - at.row), best);
      }
    }
    const int half = p.output.cache.head_dim / 2;
    auto finish = [&](auto kind) {
#pragma unroll
      for (int n = 0; n < kN8; ++n) {
        const int row = first_row + n * 8;
        if (!exists || row >= p.rows) continue;
        const bool rotary = decltype(kind)::value == OutputKind::kQkv;
        const int64_t angle = rotary ? static_cast<int64_t>(row) * half : 0,
                      token = rotary ? cache_token[row - at.row] : 0;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          FinishAs<decltype(kind)::value>(p.output, p.weight.rows, row, pair + 8 * i, total[n][2 * i],
                                          total[n][2 * i + 1], p.output.cos + angle, p.output.sin + angle, token);
      }
    };
    switch (p.output.kind) {
      case OutputKind::kQkv:
        finish(std::integral_constant<OutputKind, OutputKind::kQkv>{});
        break;
      case OutputKind::kGelu:
        finish(std::integral_constant<OutputKind, OutputKind::kGelu>{});
        break;
      case OutputKind::kAddTo:
        finish(std::integral_constant<OutputKind, OutputKind::kAddTo>{});
        break;
      default:
        if (p.output.data) finish(std::integral_constant<OutputKind, OutputKind::kStore>{});
    }
    if (head) {
      __syncthreads();
      for (int i = thread; i < kColumns && at.row + i < p.rows; i += threads) {
        atomicMax(p.output.best + at.row + i, winners[i]);
        __threadfence();
      }
    }
  }
  Mark(p.trace, 4);
  if (p.output.kind == OutputKind::kHead) {
    __syncthreads();
    if (thread == 0) arrived = atomicAdd(p.output.counter, 1u);
    __syncthreads();
    if (arrived == gridDim.x - 1) {
      __threadfence();
      if (thread == 0) *p.output.counter = 0;
      FinishHead(p.output, p.rows, threads, thread);
    }
  }
}

}  // namespace voxrt::cuda_kernels
