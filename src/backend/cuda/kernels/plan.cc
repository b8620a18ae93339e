// How a linear or an attention runs on a device: grid, shared memory, groups. Pure functions of shapes and device
// limits, so that work partition is tested without a GPU. Nothing here changes results: slices and groups depend on the
// shape alone.
#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {
namespace {

// Layout of a block of the streaming kernel; returns its bytes. Rows of x lie an odd number of 16-byte steps apart, so
// that ldmatrix has no bank conflicts; 16 zero bytes before them stand for the rows that do not exist.
int LaySmall(const LinearParams& p, int slots, int tiles_per_block, int batch_tiles, SmallPlan* l) {
  l->slices = SliceCount(p.weight.units);
  l->slice_units = SliceUnits(p.weight.units);
  l->x = kSmallWarps * slots * UnitBytes(p.weight.format);
  l->x_stride = p.weight.units * kUnitCols * 2 + 16;
  l->partial = l->x + 16 + p.rows * l->x_stride;
  l->partial_floats = l->slices * batch_tiles * p.rows * kTileRows;
  const bool one_batch = batch_tiles >= tiles_per_block;  // else the next batch is summed while one is folded
  l->bias = l->partial + (one_batch ? 1 : 2) * l->partial_floats * 4;
  l->rope = l->bias + (p.weight.bias != nullptr ? tiles_per_block * kTileRows * 4 : 0);
  l->token = (l->rope + (p.output.kind == OutputKind::kQkv ? p.rows * p.output.cache.head_dim * 4 : 0) + 15) / 16 * 16;
  l->parts = l->token + kSmallRows * 8;
  return l->parts + kSmallRows * 16 * 4 + kSmallRows * 8;
}

// i / divisor = i * Reciprocal(divisor) >> 20 of a small i.
uint32_t Reciprocal(int divisor) {
  return ((1u << 20) + static_cast<uint32_t>(divisor) - 1) / static_cast<uint32_t>(divisor);
}

// Tiles of a block, so that a device is busy evenly. The cost of a stage in cycles is that of its busiest part: tensor
// cores, reads of x from shared memory, instructions, bytes from L2 (measured rates of an H200).
void PlanWide(const LinearParams& p, const DeviceLimits& device, LinearPlan* plan) {
  const int sm_count = device.sm_count;
  const int unit = UnitBytes(p.weight.format);
  const int columns = p.rows <= 16 ? 16 : p.rows <= 32 ? 32 : 64, n8 = columns / 8;
  const int row_blocks = (p.rows + columns - 1) / columns;
  const int slice_units = SliceUnits(p.weight.units);
  const int group_slices = GroupSlices(p.weight.tiles, p.weight.units);
  const int group_units = group_slices * slice_units;
  const int groups = (p.weight.units + group_units - 1) / group_units;
  constexpr int kWideStatic = 256;  // shared memory that the kernel has beyond what every kernel may have
  const int stages = WideStages(n8);
  const bool hopper = device.clusters > 0;
  const int step = hopper ? 4 : 1;  // warps of a block come in fours where they multiply together
  int64_t best = -1;
  const int most_warps = hopper ? HopperMostWarps(n8) : kWideMostWarps;
  for (int warps = std::min(most_warps, (p.weight.tiles + step - 1) / step * step); warps >= 1; warps -= step) {
    const int stage_bytes = columns * kUnitCols * 2 + warps * unit;
    const int shared_bytes = kWideAlign + stages * stage_bytes + columns * (warps * kTileRows + kWideSumsPad) * 4;
    if (shared_bytes + kWideStatic > device.shared_limit) continue;
    const int tile_groups = (p.weight.tiles + warps - 1) / warps;
    // Groups of one output: a cluster of blocks, or items apart.
    const int cluster = hopper ? groups : 1;
    const int items = tile_groups * row_blocks * (groups / cluster);
    const int places = cluster == 1 ? sm_count : device.clusters;
    const int products =
        hopper ? std::max(warps * n8 * 8, warps * 180 / 4) : std::max(warps * n8 * 16, warps * (170 + 12 * n8) / 4);
    const int stage = std::max({500, products, stage_bytes * 10 / 206});
    const int64_t cost =
        int64_t{(items + places - 1) / places} * (int64_t{std::min(group_units, p.weight.units)} * stage + 700);
    if (best >= 0 && cost >= best) continue;
    best = cost;
    plan->kernel = hopper ? LinearKernel::kHopper : LinearKernel::kWide;
    plan->threads = (warps + (hopper ? 1 : 0)) * 32;
    plan->tiles_per_block = warps;
    plan->columns = columns;
    plan->blocks = std::min(items, places) * cluster;
    plan->slots = stages;
    plan->shared_bytes = shared_bytes;
    plan->cluster = cluster;
    plan->wide = {slice_units, group_units, groups, tile_groups, items, 0};
    const bool apart = groups > 1 && cluster == 1;
    plan->workspace_floats = apart ? int64_t{items} * columns * warps * kTileRows : 0;
    plan->split_counters = apart ? tile_groups * row_blocks : 0;
  }
  const int outputs = p.output.kind == OutputKind::kSwiGlu ? p.weight.rows / 2 : p.weight.rows;
  plan->wide.vectors =
      p.output.stride % 8 == 0 && outputs % 8 == 0 && reinterpret_cast<uintptr_t>(p.output.data) % 16 == 0 ? 1 : 0;
}

bool PlanSmall(const LinearParams& p, const DeviceLimits& device, LinearPlan* plan) {
  const int sm_count = device.sm_count, shared_limit = device.shared_limit;
  const int tiles_per_block = (p.weight.tiles + sm_count - 1) / sm_count;
  const int wanted = std::min(tiles_per_block, 16);
  for (const int limit :
       {std::min(shared_limit, kSmallPhaseBytes), std::min(shared_limit, kLargePhaseBytes), shared_limit}) {
    // Outputs that are added have one depth, so that phases of different inputs share an instance.
    const int least_depth = p.output.kind == OutputKind::kAddTo ? 1 : 0;
    for (int depth = least_depth; depth < kRingDepths; ++depth) {
      const int slots = RingSlots(p.weight.format, depth);
      const int least = depth + 1 < kRingDepths ? std::min(wanted, 3) : 1;
      for (int batch = wanted; batch >= least; --batch) {
        const int bytes = LaySmall(p, slots, tiles_per_block, batch, &plan->small);
        if (bytes > limit) continue;
        plan->kernel = LinearKernel::kSmall;
        plan->threads = kSmallThreads;
        plan->tiles_per_block = tiles_per_block;
        plan->blocks = sm_count;
        // Equal batches: 9 tiles with room for 8 run as 5 + 4.
        const int batches = (tiles_per_block + batch - 1) / batch;
        plan->batch_tiles = (tiles_per_block + batches - 1) / batches;
        LaySmall(p, slots, tiles_per_block, plan->batch_tiles, &plan->small);
        plan->small.group_slices = GroupSlices(p.weight.tiles, p.weight.units);
        plan->small.slice_reciprocal = Reciprocal(plan->small.slices);
        plan->small.column_reciprocal = Reciprocal(p.rows);
        plan->small.block_tiles = p.weight.tiles / sm_count;
        plan->small.block_tiles_rest = p.weight.tiles % sm_count;
        plan->slots = slots;
        plan->shared_bytes = bytes;
        return true;
      }
    }
  }
  return false;
}

}  // namespace

LinearPlan PlanLinear(const LinearParams& p, const DeviceLimits& device) {
  LinearPlan plan;
  if (p.rows <= kSmallRows && PlanSmall(p, device, &plan)) return plan;
  PlanWide(p, device, &plan);  // one tile to a block fits the 98 KB of every supported device
  return plan;
}

int AttentionTilePositions(int heads, int kv_heads, int head_dim, bool int8, int shared_limit) {
  const int group = heads / kv_heads;
  int positions = std::max(1, 16 / group);
  while (positions > 1 &&
         MakeAttentionLayout(head_dim, int8, positions * group, 1, kMostBlockItems).total > shared_limit)
    --positions;
  return positions;
}

AttentionPlan PlanAttention(int heads, int kv_heads, int head_dim, bool int8, int tiles, int most_tile_rows,
                            const DeviceLimits& device) {
  const int sm_count = device.sm_count, shared_limit = device.shared_limit;
  constexpr int kTwoOnOneSm = 112 * 1024;
  AttentionPlan plan;
  plan.tile_positions = AttentionTilePositions(heads, kv_heads, head_dim, int8, shared_limit);
  plan.groups = AttentionGroups(head_dim);
  plan.group_reciprocal = Reciprocal(heads / kv_heads);
  plan.stages = AttentionStages(head_dim, int8);
  const int columns = std::min(plan.tile_positions, most_tile_rows) * (heads / kv_heads);
  auto layout = [&](int items) {
    return MakeAttentionLayout(head_dim, int8, columns, plan.groups / plan.blocks_per_tile, items);
  };
  plan.q8 = columns <= 8 ? 1 : 2;
  plan.blocks_per_tile = 1;
  while (plan.blocks_per_tile < plan.groups && (tiles * kv_heads * plan.blocks_per_tile < sm_count * 3 / 4 ||
                                                layout(kMostBlockItems).total > std::min(kTwoOnOneSm, shared_limit)))
    plan.blocks_per_tile *= 2;
  // As many blocks as run at once take the items in turn. A phase that fits one wave takes one block of every SM, idle
  // ones included: see shapes.h.
  plan.items = tiles * kv_heads * plan.blocks_per_tile;
  const bool two = 2 * (layout(kMostBlockItems).total + 1024) <= shared_limit + 1024;
  const int places = std::max(sm_count * (two ? 2 : 1), (plan.items + kMostBlockItems - 1) / kMostBlockItems);
  plan.blocks = std::max(std::min(plan.items, places), sm_count);
  plan.block_items = (plan.items + plan.blocks - 1) / plan.blocks;
  plan.layout = layout(plan.block_items);
  plan.shared_bytes = plan.layout.total;
  if (plan.blocks_per_tile > 1) {
    plan.workspace_floats = static_cast<int64_t>(tiles) * kv_heads * plan.groups * 8 * plan.q8 * (head_dim + 2);
    plan.counters = tiles * kv_heads;
  }
  return plan;
}

AttentionParams WithPlan(const AttentionParams& params, const AttentionPlan& plan) {
  AttentionParams p = params;
  p.layout = plan.layout;
  p.items = plan.items;
  p.block_items = plan.block_items;
  p.group = p.heads / p.cache.kv_heads;
  p.block_groups = plan.groups / plan.blocks_per_tile;
  for (p.part_shift = 0; 1 << p.part_shift < plan.blocks_per_tile;) ++p.part_shift;
  p.group_reciprocal = plan.group_reciprocal;
  p.blocks_per_tile = plan.blocks_per_tile;
  return p;
}

}  // namespace voxrt::cuda_kernels
