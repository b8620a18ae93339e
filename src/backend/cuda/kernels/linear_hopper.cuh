// Linear for more than 8 rows on compute capability 9.0: the wide kernel (linear_wide.cuh) with what that has. Same
// sums, bit for bit.
//
// Four warps multiply together (warpgroup MMAs): each unpacks a 16-row tile of the weight into registers, and 16 to 128
// rows of x are read from shared memory once for the four. Four more warps, which give their registers to the others,
// ask for bulk copies, stage after stage, as soon as all others are done with a stage; those wait for nothing but
// stages. Sums leave through shared memory (linear_rows.cuh).
//
// The groups of an output follow each other in one block where there are items enough; else they are the blocks of a
// cluster, each of which adds its share of columns from the shared memory of all.
//
//   Weights of the first stages are asked for before WaitForPrevious, rows of x after it.
#pragma once

#include "backend/cuda/kernels/linear_rows.cuh"
#include "backend/cuda/kernels/ptx_hopper.cuh"
#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

template <WeightFormat kFormat, int kN8, RowsUse kUse = RowsUse::kAny>
__global__ void __launch_bounds__(HopperThreads(HopperMostWarps(kN8)), 1)
    LinearHopperKernel(const __grid_constant__ LinearParams p) {
  if constexpr (!kBuildsHopper) return;
  VOXRT_DYNAMIC_SHARED(dynamic_shared);
  constexpr int kUnit = UnitBytes(kFormat), kColumns = kN8 * 8, kHalfBytes = kColumns * 128, kXBytes = 2 * kHalfBytes;
  // Registers of a warp that multiplies and of the others; together those of the launch.
  constexpr int kMany = kN8 == 16 ? 232 : 160, kFew = kN8 == 16 ? 40 : 24;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, warps = blockDim.x / 32 - 4;
  const int units = p.weight.units, slice_units = p.wide.slice_units, group_units = p.wide.group_units;
  const int items = p.wide.items, tile_groups = p.wide.tile_groups, stages = p.wide.stages;
  const int groups = p.wide.cluster;  // in blocks of their own
  const int item_step = gridDim.x / groups, first_item = blockIdx.x / groups;
  const int group = blockIdx.x - first_item * groups;  // rank in the cluster
  const int first_unit = group * group_units, item_units = groups > 1 ? min(group_units, units - first_unit) : units;
  // Stages of x, [half of its inputs][row], swizzled, then stages of weights, then sums.
  const uint32_t align = -SharedAddress(dynamic_shared) & (kWideAlign - 1);
  char* const smem = dynamic_shared + align;
  const uint32_t shared = SharedAddress(dynamic_shared) + align;
  const int weights_at = stages * kXBytes, weight_stage = warps * kUnit;
  constexpr int kRowsAsker = 3;
  static_assert(kWideMostWarps / kTileGroup <= kRowsAsker);
  const int parts = warps / kTileGroup;  // of the weights of a stage
  __shared__ __align__(8) uint64_t full[kWideMostStages], used[kWideMostStages], summed, read;
  __shared__ int64_t cache_token[kColumns];
  LaunchDependents();
  Mark(p.trace, 0);
  if (thread == 0) {
    for (int i = 0; i < stages; ++i) InitBarrier(full + i, parts + 1), InitBarrier(used + i, warps);
    InitBarrier(&summed, groups), InitBarrier(&read, groups);
    ShowBarriers();
  }
  if (groups == 1) {
    __syncthreads();
  } else {
    SyncCluster();
  }

  // Item i: tiles i % tile_groups of row block i / tile_groups.
  auto tile_at = [&](int item) { return item % tile_groups * warps; };
  auto row_at = [&](int item) { return item / tile_groups * kColumns; };

  if (warp >= warps) {
    SetRegisters<kFew, false>();
    const int asker = warp - warps;  // of a part of the weights, or of rows
    if (lane != 0 || (asker >= parts && asker < kRowsAsker)) {
      PrefetchShare(p.prefetch);
      return;
    }
    // A lone warp takes several cycles for each instruction, so that four ask side by side, and all that a stage needs
    // is found once for an item and counted on.
    int place = 0;
    uint32_t parity = 1;  // of `used` at `place`: the first stages are free
    auto next_place = [&] {
      if (++place == stages) place = 0, parity ^= 1;
    };
    if (asker < kRowsAsker) {
      constexpr int kPart = kTileGroup * kUnit;
      const uint32_t to = shared + weights_at + asker * kPart;
#pragma unroll 1
      for (int item = first_item; item < items; item += item_step) {
        // Tiles that do not exist repeat the last ones.
        const int tile = min(tile_at(item) + asker * kTileGroup, (p.weight.tiles - 1) / kTileGroup * kTileGroup);
        const uint8_t* from = p.weight.data + UnitAt(tile, first_unit, units) * kUnit;
#pragma unroll 1
        for (int unit = 0; unit < item_units; ++unit, from += kPart) {
          WaitBarrier(used + place, parity);
          ArriveAndExpect(full + place, kPart);
          BulkCopy(to + place * weight_stage, from, kPart, full + place);
          next_place();
        }
      }
      return;
    }
    WaitForPrevious();
#pragma unroll 1
    for (int item = first_item; item < items; item += item_step) {
      const int row = row_at(item);
      int column = first_unit * kUnitCols;
#pragma unroll 1
      for (int unit = 0; unit < item_units; ++unit, column += kUnitCols) {
        WaitBarrier(used + place, parity);
        ArriveAndExpect(full + place, kXBytes);
        const uint32_t to = shared + place * kXBytes;
        BulkRows(to, p.rows_map, column, row, full + place);
        BulkRows(to + kHalfBytes, p.rows_map, column + 64, row, full + place);
        next_place();
      }
    }
    return;
  }

  SetRegisters<kMany, true>();
  const int sums_stride = warps * kTileRows + kWideSumsPad;
  float* const sums = reinterpret_cast<float*>(smem + weights_at + stages * weight_stage);
  PrefetchShare(p.prefetch);
  // Places of new keys and values, from the plan: constants.
  const bool stores_cache =
      (kUse == RowsUse::kAny || kUse == RowsUse::kQkv) && p.output.kind == OutputKind::kQkv && p.output.store_cache;
  auto find_cache_tokens = [&](int row) {
    if (stores_cache && thread < kColumns && row + thread < p.rows)
      cache_token[thread] =
          CacheToken(p.output.cache, p.output.row_slot[row + thread], p.output.row_index[row + thread]);
  };
  find_cache_tokens(row_at(first_item));
  WaitForPrevious();
  Mark(p.trace, 1);
  Mark(p.trace, 2);

  // The blocks of a cluster meet at a barrier that each of them has.
  auto meet = [&](uint64_t* barrier, uint32_t phase) {
    SyncWarps(warps);
    if (thread < groups) ArriveInCluster(barrier, thread);
    WaitBarrier(barrier, phase);
  };
  int place = 0;
  uint32_t parity = 0, item_parity = 0;  // of `full` at `place`, of an item's barriers
#pragma unroll 1
  for (int item = first_item; item < items; item += item_step) {
    float acc[kN8][4], total[kN8][4];
#pragma unroll
    for (int n = 0; n < kN8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
    uint64_t rows = 0;  // of x, of the unit that was unpacked last
    auto unpack = [&](uint32_t(&fragments)[8][4]) {
      WaitBarrier(full + place, parity);
      ForEachFragment<kFormat>(
          smem + weights_at + place * weight_stage + warp * kUnit, lane, [] {},
          [&](int j, const uint32_t(&a)[2][4]) {
#pragma unroll
            for (int i = 0; i < 8; ++i) fragments[2 * j + i / 4][i % 4] = a[i / 4][i % 4];
          });
      // One value for the warp, which the compiler then knows: addresses of MMAs are uniform registers.
      rows = GroupMmaRows(__shfl_sync(0xffffffffu, shared + static_cast<uint32_t>(place * kXBytes), 0));
      // Here, not after the wait for the MMAs before.
#pragma unroll
      for (int i = 0; i < 8; ++i) FinishRegisters(fragments[i]);
    };
    auto multiply = [&](uint32_t(&fragments)[8][4], bool add) {
      FenceGroupMma();
#pragma unroll
      for (int i = 0; i < 8; ++i)
        GroupMma(acc, fragments[i], rows + static_cast<uint64_t>((i / 4 * kHalfBytes + i % 4 * 32) / 16), add || i > 0);
      CommitGroupMma();
      if (++place == stages) place = 0, parity ^= 1;
    };
    int in_slice = 0;  // units that have been multiplied
    auto end_unit = [&](bool last) {
      WaitGroupMma();
      if (lane == 0) Arrive(used + (place == 0 ? stages : place) - 1);
      if (++in_slice < slice_units && !last) return;
      in_slice = 0;
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) total[n][i] += acc[n][i];
    };
    // Lane: rows g and g + 8 of the tile, rows 2 c and 2 c + 1 of x in each eight.
    float* const own = sums + lane % 4 * 2 * sums_stride + warp * kTileRows + lane / 4;
#pragma unroll 1
    for (int begin = 0; begin < item_units; begin += group_units) {
      const int end = min(begin + group_units, item_units);
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) total[n][i] = -0.0f;  // -0 + x is x, whatever its sign
      // Units in pairs: the second is unpacked while the first is multiplied. (Not on and on: ptxas lets MMAs wait for
      // each other where they cross the end of a loop; chains of four were no faster.)
      int unit = begin;
#pragma unroll 1
      for (; unit + 2 <= end; unit += 2) {
        uint32_t first[8][4], second[8][4];
        unpack(first);
        multiply(first, in_slice > 0);
        unpack(second);
        end_unit(false);
        multiply(second, in_slice > 0);
        end_unit(unit + 2 == end);
      }
      if (unit < end) {
        uint32_t last[8][4];
        unpack(last);
        multiply(last, in_slice > 0);
        end_unit(true);
      }
      Mark(p.trace, 3);
      if (begin == 0) {
        if (item != first_item) {
          SyncWarps(warps);  // the sums before have been read
          find_cache_tokens(row_at(item));
        }
#pragma unroll
        for (int n = 0; n < kN8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) own[(n * 8 + i % 2) * sums_stride + i / 2 * 8] = total[n][i];
      } else {  // the next group
#pragma unroll
        for (int n = 0; n < kN8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) own[(n * 8 + i % 2) * sums_stride + i / 2 * 8] += total[n][i];
      }
    }
    const RowBlock block{tile_at(item), warps, row_at(item), cache_token};
    if (groups == 1) {
      SyncWarps(warps);
    } else {
      meet(&summed, item_parity);
    }
    const int share = kColumns / groups, first_column = share * group;
    FinishRows<kUse>(p, block, first_column, group + 1 == groups ? kColumns : first_column + share, warps * 32,
                     [&](int column, int output, float(&y)[8]) {
                       const float* const from = sums + column * sums_stride + output;
                       if (groups == 1) return Load8(y, from);
                       float next[8];  // on its way while another is added
                       Load8(y, MapToCluster(from, 0));
                       Load8(next, MapToCluster(from, 1));
#pragma unroll
                       for (int s = 1; s < kMostGroups; ++s) {
                         if (s >= groups) break;
                         float after[8];
                         if (s + 1 < groups) Load8(after, MapToCluster(from, s + 1));
#pragma unroll
                         for (int i = 0; i < 8; ++i) y[i] += next[i], next[i] = after[i];
                       }
                     });
    if (groups > 1) meet(&read, item_parity);  // nobody leaves, or writes, while others read its sums
    item_parity ^= 1;
  }
  Mark(p.trace, 4);
  if ((kUse == RowsUse::kAny || kUse == RowsUse::kHead) && p.output.kind == OutputKind::kHead) {
    auto* const arrived = reinterpret_cast<uint32_t*>(sums);
    SyncWarps(warps);
    if (thread == 0) *arrived = CountArrival(p.output.counter);
    SyncWarps(warps);
    if (*arrived == gridDim.x - 1) {
      if (thread == 0) *p.output.counter = 0;
      FinishHead(p.output, p.rows, warps * 32, thread, [&] { SyncWarps(warps); });
    }
  }
}

}  // namespace voxrt::cuda_kernels
