// Linear for more than 8 rows on compute capability 9.0: the wide kernel (linear_wide.cuh) with what that has. Same
// sums, bit for bit.
//
// Four warps multiply together (warpgroup MMAs): each unpacks a 16-row tile of the weight into registers, and 8 to 64
// rows of x are read from shared memory once for the four. One more warp asks for bulk copies, stage after stage, as
// soon as all others are done with a stage; those wait for nothing but stages. Sums leave through shared memory
// (linear_rows.cuh); groups of one output are the blocks of a cluster, each of which adds its share of columns from the
// shared memory of all.
//
//   Weights of the first stages are asked for before WaitForPrevious, rows of x after it.
#pragma once

#include "backend/cuda/kernels/linear_rows.cuh"
#include "backend/cuda/kernels/ptx_hopper.cuh"
#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

template <WeightFormat kFormat, int kN8, RowsUse kUse = RowsUse::kAny>
__global__ void __launch_bounds__((HopperMostWarps(kN8) + 1) * 32, 1)
    LinearHopperKernel(const __grid_constant__ LinearParams p) {
  if constexpr (!kBuildsHopper) return;
  VOXRT_DYNAMIC_SHARED(dynamic_shared);
  constexpr int kUnit = UnitBytes(kFormat), kColumns = kN8 * 8, kStages = WideStages(kN8), kHalfBytes = kColumns * 128,
                kXBytes = 2 * kHalfBytes;
  constexpr bool kPairs = HopperPairs(kN8);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, warps = blockDim.x / 32 - 1;
  const int units = p.weight.units, slice_units = p.wide.slice_units, group_units = p.wide.group_units;
  const int items = p.wide.items, tile_groups = p.wide.tile_groups, groups = p.wide.groups;
  const int item_step = gridDim.x / groups, first_item = blockIdx.x / groups;
  const int group = blockIdx.x - first_item * groups;  // rank in the cluster
  const int first_unit = group * group_units, item_units = min(group_units, units - first_unit);
  // Stages of x, [half of its inputs][row], swizzled, then stages of weights, then sums.
  const uint32_t align = -SharedAddress(dynamic_shared) & (kWideAlign - 1);
  char* const smem = dynamic_shared + align;
  const uint32_t shared = SharedAddress(dynamic_shared) + align;
  constexpr int kWeights = kStages * kXBytes;
  const int weight_stage = warps * kUnit;
  __shared__ __align__(8) uint64_t full[kStages], used[kStages], summed, read;
  __shared__ int64_t cache_token[kColumns];
  __shared__ uint32_t arrived;
  LaunchDependents();
  Mark(p.trace, 0);
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) InitBarrier(full + i, 1), InitBarrier(used + i, warps);
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

  if (warp == warps) {
    auto ask_weights = [&](int item, int unit, int place) {
      if (lane == 0) ArriveAndExpect(full + place, kXBytes + weight_stage);
      __syncwarp();
      const int tile = min(tile_at(item) + lane * kTileGroup, (p.weight.tiles - 1) / kTileGroup * kTileGroup);
      if (lane < warps / kTileGroup)  // tiles that do not exist repeat the last ones
        BulkCopy(shared + kWeights + place * weight_stage + lane * kTileGroup * kUnit,
                 p.weight.data + UnitAt(tile, first_unit + unit, units) * kUnit, kTileGroup * kUnit, full + place);
    };
    auto ask_rows = [&](int item, int unit, int place) {
      if (lane != 0) return;
      const uint32_t to = shared + place * kXBytes;
      const int column = (first_unit + unit) * kUnitCols;
      BulkRows(to, p.rows_map, column, row_at(item), full + place);
      BulkRows(to + kHalfBytes, p.rows_map, column + 64, row_at(item), full + place);
    };
    const int ahead = min(kStages, item_units);
    for (int i = 0; i < ahead; ++i) ask_weights(first_item, i, i);
    PrefetchShare(p.prefetch);
    WaitForPrevious();
    int place = 0, turn = 0;
#pragma unroll 1
    for (int item = first_item; item < items; item += item_step) {
#pragma unroll 1
      for (int unit = 0; unit < item_units; ++unit) {
        const bool begins = item == first_item && unit < ahead;
        if (turn > 0) WaitBarrier(used + place, (turn - 1) & 1);
        if (!begins) ask_weights(item, unit, place);
        ask_rows(item, unit, place);
        if (++place == kStages) place = 0, ++turn;
      }
    }
    return;
  }

  const int sums_stride = warps * kTileRows + kWideSumsPad;
  float* const sums = reinterpret_cast<float*>(smem + kWeights + kStages * weight_stage);
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
    WaitBarrierInCluster(barrier, phase);
  };
  int place = 0;
  uint32_t parity = 0, item_parity = 0;  // of `full` at `place`, of an item's barriers
#pragma unroll 1
  for (int item = first_item; item < items; item += item_step) {
    float acc[kN8][4], total[kN8][4];
#pragma unroll
    for (int n = 0; n < kN8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f, total[n][i] = -0.0f;  // -0 + x is x, whatever its sign
    auto unpack = [&](uint32_t(&fragments)[8][4]) {
      WaitBarrier(full + place, parity);
      ForEachFragment<kFormat>(
          smem + kWeights + place * weight_stage + warp * kUnit, lane, [] {},
          [&](int j, const uint32_t(&a)[2][4]) {
#pragma unroll
            for (int i = 0; i < 8; ++i) fragments[2 * j + i / 4][i % 4] = a[i / 4][i % 4];
          });
    };
    auto multiply = [&](uint32_t(&fragments)[8][4], bool add) {
      const uint64_t rows = GroupMmaRows(shared + place * kXBytes);
#pragma unroll
      for (int i = 0; i < 8; ++i) FinishRegisters(fragments[i]);
      FenceGroupMma();
#pragma unroll
      for (int i = 0; i < 8; ++i)
        GroupMma(acc, fragments[i], rows + static_cast<uint64_t>((i / 4 * kHalfBytes + i % 4 * 32) / 16), add || i > 0);
      CommitGroupMma();
      if (++place == kStages) place = 0, parity ^= 1;
    };
    int in_slice = 0;  // units that have been multiplied
    auto end_unit = [&](bool last) {
      WaitGroupMma();
      if (lane == 0) Arrive(used + (place == 0 ? kStages : place) - 1);
      if (++in_slice < slice_units && !last) return;
      in_slice = 0;
#pragma unroll
      for (int n = 0; n < kN8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) total[n][i] += acc[n][i];
    };
    // Units in pairs: the second is unpacked while the first is multiplied. (Not on and on: ptxas lets MMAs wait for
    // each other where they cross the end of a loop.)
#pragma unroll 1
    for (int unit = 0; unit < item_units; ++unit) {
      uint32_t first[8][4];
      unpack(first);
      multiply(first, in_slice > 0);
      if (kPairs && unit + 1 < item_units) {
        uint32_t second[8][4];
        unpack(second);
        end_unit(false);
        multiply(second, in_slice > 0);
        ++unit;
      }
      end_unit(unit + 1 == item_units);
    }
    Mark(p.trace, 3);
    if (item != first_item) {
      SyncWarps(warps);  // the sums before have been read
      find_cache_tokens(row_at(item));
    }
    // Lane: rows g and g + 8 of the tile, rows 2 c and 2 c + 1 of x in each eight.
    float* const own = sums + lane % 4 * 2 * sums_stride + warp * kTileRows + lane / 4;
#pragma unroll
    for (int n = 0; n < kN8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) own[(n * 8 + i % 2) * sums_stride + i / 2 * 8] = total[n][i];
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
                       Load8(y, MapToCluster(from, 0));
                       for (int s = 1; s < groups; ++s) Add8(y, MapToCluster(from, s));
                     });
    if (groups > 1) meet(&read, item_parity);  // nobody leaves, or writes, while others read its sums
    item_parity ^= 1;
  }
  Mark(p.trace, 4);
  if ((kUse == RowsUse::kAny || kUse == RowsUse::kHead) && p.output.kind == OutputKind::kHead) {
    SyncWarps(warps);
    if (thread == 0) arrived = CountArrival(p.output.counter);
    SyncWarps(warps);
    if (arrived == gridDim.x - 1) {
      if (thread == 0) *p.output.counter = 0;
      FinishHead(p.output, p.rows, warps * 32, thread, [&] { SyncWarps(warps); });
    }
  }
}

}  // namespace voxrt::cuda_kernels
