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

int Columns(int rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128; }

// How the work is split, whatever the kernel; the plan's results do not depend on it.
struct WideSplit {
  int slice_units, group_units, groups;
};
WideSplit SplitWide(const WeightRef& w) {
  const int slice_units = SliceUnits(w.units);
  const int group_units = GroupSlices(w.tiles, w.units) * slice_units;
  return {slice_units, group_units, (w.units + group_units - 1) / group_units};
}

// Shared memory that the kernels have beyond what every kernel may have.
constexpr int kWideStatic = 256, kHopperStatic = 512;

int WideShared(const LinearParams& p, int columns, int warps, int stages) {
  const int stage_bytes = columns * kUnitCols * 2 + warps * UnitBytes(p.weight.format);
  return kWideAlign + stages * stage_bytes + columns * (warps * kTileRows + kWideSumsPad) * 4;
}

// Tiles of a block, so that a device is busy evenly. The cost of a stage in cycles is that of its busiest part: tensor
// cores, reads of x from shared memory, instructions, bytes from L2 (measured rates of an H200).
void PlanWide(const LinearParams& p, const DeviceLimits& device, LinearPlan* plan) {
  const int columns = std::min(Columns(p.rows), 64), n8 = columns / 8, stages = WideStages(n8);
  const int row_blocks = (p.rows + columns - 1) / columns;
  const WideSplit split = SplitWide(p.weight);
  int64_t best = -1;
  for (int warps = std::min(kWideMostWarps, p.weight.tiles); warps >= 1; --warps) {
    const int shared_bytes = WideShared(p, columns, warps, stages);
    if (shared_bytes + kWideStatic > device.shared_limit) continue;
    const int tile_groups = (p.weight.tiles + warps - 1) / warps;
    const int items = tile_groups * row_blocks * split.groups;
    const int products = std::max(warps * n8 * 16, warps * (170 + 12 * n8) / 4);
    const int stage_bytes = columns * kUnitCols * 2 + warps * UnitBytes(p.weight.format);
    const int stage = std::max({500, products, stage_bytes * 10 / 206});
    const int64_t cost = int64_t{(items + device.sm_count - 1) / device.sm_count} *
                         (int64_t{std::min(split.group_units, p.weight.units)} * stage + 700);
    if (best >= 0 && cost >= best) continue;
    best = cost;
    plan->kernel = LinearKernel::kWide;
    plan->threads = warps * 32;
    plan->tiles_per_block = warps;
    plan->columns = columns;
    plan->blocks = std::min(items, device.sm_count);
    plan->shared_bytes = shared_bytes;
    plan->wide = {split.slice_units, split.group_units, split.groups, tile_groups, items, 0, stages, 1};
    plan->workspace_floats = split.groups > 1 ? int64_t{items} * columns * warps * kTileRows : 0;
    plan->split_counters = split.groups > 1 ? tile_groups * row_blocks : 0;
  }
}

// Instructions that a warp needs to make a unit bf16 (counted in machine code).
int UnpackCost(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4G128:
      return 140;
    case WeightFormat::kInt4G32:
      return 180;
    case WeightFormat::kInt8Row:
    case WeightFormat::kInt8G32:
      return 200;
    case WeightFormat::kBf16:
      break;
  }
  return 70;
}

// The same for the kernel of compute capability 9.0: one block has all groups of an output, or a cluster does.
void PlanHopper(const LinearParams& p, const DeviceLimits& device, LinearPlan* plan) {
  const WideSplit split = SplitWide(p.weight);
  int64_t best = -1;
  auto consider = [&](int columns, int warps, int cluster) {
    const int n8 = columns / 8, unit = UnitBytes(p.weight.format);
    const int row_blocks = (p.rows + columns - 1) / columns, tile_groups = (p.weight.tiles + warps - 1) / warps;
    if (warps > HopperMostWarps(n8)) return;
    int stages = WideStages(n8);
    while (stages > 2 && WideShared(p, columns, warps, stages) + kHopperStatic > device.shared_limit) --stages;
    const int shared_bytes = WideShared(p, columns, warps, stages);
    if (shared_bytes + kHopperStatic > device.shared_limit) return;
    const int items = tile_groups * row_blocks, places = cluster == 1 ? device.sm_count : device.clusters;
    const int products = warps * columns, unpacking = warps * UnpackCost(p.weight.format) / 4;
    const int bytes = (columns * kUnitCols * 2 + warps * unit) / 22;
    const int stage = std::max(bytes, products + unpacking / 2) + 200;
    const int units = cluster > 1 ? std::min(split.group_units, p.weight.units) : p.weight.units;
    const int64_t cost = int64_t{(items + places - 1) / places} *
                         (int64_t{units} * stage + 1500 + columns * warps * 4 + (cluster > 1 ? 1000 : 0));
    if (best >= 0 && cost >= best) return;
    best = cost;
    plan->kernel = LinearKernel::kHopper;
    plan->threads = HopperThreads(warps);
    plan->tiles_per_block = warps;
    plan->columns = columns;
    plan->blocks = std::min(items, places) * cluster;
    plan->shared_bytes = shared_bytes;
    plan->wide = {split.slice_units, split.group_units, split.groups, tile_groups, items, 0, stages, cluster};
  };
  const int most_columns = Columns(p.rows);
  for (const int columns : {most_columns, std::min(most_columns, 64)}) {
    for (int warps = std::min(kWideMostWarps, (p.weight.tiles + 3) / 4 * 4); warps >= 4; warps -= 4) {
      if (split.groups > 1) consider(columns, warps, split.groups);
      consider(columns, warps, 1);
    }
  }
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
  if (device.clusters > 0) {
    PlanHopper(p, device, &plan);
  } else {
    PlanWide(p, device, &plan);  // one tile to a block fits the 98 KB of every supported device
  }
  const int outputs = p.output.kind == OutputKind::kSwiGlu ? p.weight.rows / 2 : p.weight.rows;
  plan.wide.vectors =
      p.output.stride % 8 == 0 && outputs % 8 == 0 && reinterpret_cast<uintptr_t>(p.output.data) % 16 == 0 ? 1 : 0;
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
