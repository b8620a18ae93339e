// How a linear or an attention runs on a device: grid, shared memory, splits. Pure functions of shapes and device
// limits, so that work partition is tested without a GPU. Nothing here changes results: slices and splits depend on the
// shape alone.
#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {
namespace {

constexpr int kTallThreads = 256;

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

uint32_t Reciprocal(int divisor) {
  return ((1u << 20) + static_cast<uint32_t>(divisor) - 1) / static_cast<uint32_t>(divisor);
}

int TallSharedBytes(WeightFormat format, int warp_rows, int columns, int stages) {
  const int pipe = stages * (warp_rows * UnitBytes(format) + columns * kUnitCols * 2);
  return std::max(pipe, columns * (warp_rows * kTileRows + 1) * 4) + columns * 16;
}

// Tiles of a block, so that a device is busy evenly. The cost of a stage in cycles is that of its busiest part: tensor
// cores, reads of x from shared memory, instructions, bytes from L2 (measured rates of an H200).
bool PlanWide(const LinearParams& p, int sm_count, int shared_limit, LinearPlan* plan) {
  const int unit = UnitBytes(p.weight.format);
  const int columns = p.rows <= 16 ? 16 : p.rows <= 32 ? 32 : 64, n8 = columns / 8;
  const int row_blocks = (p.rows + columns - 1) / columns;
  const int slice_units = SliceUnits(p.weight.units);
  const int group_slices = GroupSlices(p.weight.tiles, p.weight.units, true);
  const int group_units = group_slices * slice_units;
  const int groups = (p.weight.units + group_units - 1) / group_units;
  constexpr int kWideStatic = 256;  // shared memory that the kernel has beyond what every kernel may have
  const int stages = WideStages(n8);
  int64_t best = -1;
  for (int warps = std::min(kWideMostWarps, p.weight.tiles); warps >= 1; --warps) {
    const int stage_bytes = columns * kWideXStride + warps * unit;
    if (stages * stage_bytes + kWideStatic > shared_limit) continue;
    const int tile_groups = (p.weight.tiles + warps - 1) / warps;
    const int items = tile_groups * row_blocks * groups;
    const int stage = std::max({500, warps * n8 * 16, warps * (170 + 12 * n8) / 4, stage_bytes * 10 / 206});
    const int64_t cost =
        int64_t{(items + sm_count - 1) / sm_count} * (int64_t{std::min(group_units, p.weight.units)} * stage + 700);
    if (best >= 0 && cost >= best) continue;
    best = cost;
    plan->kernel = LinearKernel::kWide;
    plan->tiles_per_block = warps;
    plan->columns = columns;
    plan->row_blocks = row_blocks;
    plan->split = groups;
    plan->blocks = std::min(items, sm_count);
    plan->slots = stages;
    plan->shared_bytes = stages * stage_bytes;
    plan->wide = {slice_units, group_units, groups, tile_groups, items, 0};
    plan->workspace_floats = groups > 1 ? int64_t{items} * columns * warps * kTileRows : 0;
    plan->split_counters = groups > 1 ? tile_groups * row_blocks : 0;
  }
  if (best < 0) return false;
  plan->wide.pairs = p.output.element == Element::kF32 && p.output.stride % 2 == 0 && p.weight.rows % 2 == 0 &&
                             reinterpret_cast<uintptr_t>(p.output.data) % 8 == 0
                         ? 1
                         : 0;
  return true;
}

bool PlanSmall(const LinearParams& p, int sm_count, int shared_limit, const KernelForms& forms, LinearPlan* plan) {
  const int tiles_per_block = (p.weight.tiles + sm_count - 1) / sm_count;
  const int wanted = std::min(tiles_per_block, 16);
  for (const int limit :
       {std::min(shared_limit, kSmallPhaseBytes), std::min(shared_limit, kLargePhaseBytes), shared_limit}) {
    for (int depth = 0; depth < kRingDepths; ++depth) {
      const int slots = RingSlots(p.weight.format, depth);
      const int least = depth + 1 < kRingDepths ? std::min(wanted, 3) : 1;
      for (int batch = wanted; batch >= least; --batch) {
        const int bytes = LaySmall(p, slots, tiles_per_block, batch, &plan->small);
        if (bytes > limit) continue;
        plan->kernel = LinearKernel::kSmall;
        plan->tiles_per_block = tiles_per_block;
        plan->blocks = sm_count;
        // Equal batches: 9 tiles with room for 8 run as 5 + 4.
        const int batches = (tiles_per_block + batch - 1) / batch;
        plan->batch_tiles = (tiles_per_block + batches - 1) / batches;
        LaySmall(p, slots, tiles_per_block, plan->batch_tiles, &plan->small);
        plan->small.group_slices = GroupSlices(p.weight.tiles, p.weight.units, forms.wide);
        plan->small.slice_reciprocal = Reciprocal(plan->small.slices);
        plan->small.column_reciprocal = Reciprocal(p.rows);
        plan->small.block_tiles = p.weight.tiles / sm_count;
        plan->small.block_tiles_rest = p.weight.tiles % sm_count;
        plan->slots = slots;
        plan->lean = forms.lean;
        plan->shared_bytes = bytes;
        return true;
      }
    }
  }
  return false;
}

}  // namespace

LinearPlan PlanLinear(const LinearParams& p, int sm_count, int shared_limit, const KernelForms& forms) {
  LinearPlan plan;
  if (p.rows <= kSmallRows && PlanSmall(p, sm_count, shared_limit, forms, &plan)) return plan;
  if (forms.wide && PlanWide(p, sm_count, shared_limit, &plan)) return plan;
  plan.kernel = LinearKernel::kTall;
  plan.columns = p.rows <= 16 ? 16 : p.rows <= 32 ? 32 : 64;
  const int warp_rows = plan.columns == 16 ? 8 : 4;
  const int n8 = plan.columns * warp_rows / 64;
  plan.blocks = (p.weight.tiles + warp_rows - 1) / warp_rows;
  plan.row_blocks = (p.rows + plan.columns - 1) / plan.columns;
  const int slices = SliceCount(p.weight.units);
  int split = 1;
  while (split < slices && plan.blocks * plan.row_blocks * split < sm_count) split *= 2;
  if (p.output.kind == OutputKind::kHead) split = 1;
  const int per_block = (slices + split - 1) / split;
  plan.split = (slices + per_block - 1) / per_block;
  if (plan.split > 1) {
    plan.workspace_floats = static_cast<int64_t>(plan.blocks) * plan.row_blocks * slices * kTallThreads * n8 * 4;
    plan.split_counters = plan.blocks * plan.row_blocks;
  }
  plan.slots = TallStages(p.weight.format, true);
  plan.shared_bytes = TallSharedBytes(p.weight.format, warp_rows, plan.columns, plan.slots);
  if (plan.shared_bytes > shared_limit) {
    plan.slots = TallStages(p.weight.format, false);
    plan.shared_bytes = TallSharedBytes(p.weight.format, warp_rows, plan.columns, plan.slots);
  }
  return plan;
}

namespace {

// Mirrors MakeAttentionLayout.
int AttentionSharedBytes(int head_dim, bool int8, int stages, int rows, int blocks_per_tile) {
  const int stage = int8 ? 2 * 16 * head_dim + 2 * 16 * 4 : 2 * 16 * head_dim * 2;
  const int per_warp = stages * stage + (int8 ? 2 * 16 * head_dim * 2 : 0);
  return kAttentionWarps * (per_warp + rows * (head_dim + 2) * 4) + 16 * head_dim * 2 +
         AttentionSplits(head_dim) * (2 * rows + (rows * head_dim + blocks_per_tile - 1) / blocks_per_tile) * 4;
}

}  // namespace

int AttentionTilePositions(int heads, int kv_heads, int head_dim, bool int8, int shared_limit,
                           const KernelForms& forms) {
  const int group = heads / kv_heads;
  int positions = std::max(1, 16 / group);
  if (forms.columns) {
    while (positions > 1 && MakeColumnsLayout(head_dim, int8, positions * group, 1).total > shared_limit) --positions;
    return positions;
  }
  while (positions > 1 &&
         AttentionSharedBytes(head_dim, int8, AttentionStages(head_dim, false), positions * group, 1) > shared_limit)
    --positions;
  return positions;
}

AttentionPlan PlanAttention(int heads, int kv_heads, int head_dim, bool int8, int tiles, int most_tile_rows,
                            int sm_count, int shared_limit, bool clusters, const KernelForms& forms) {
  AttentionPlan plan;
  plan.tile_positions = AttentionTilePositions(heads, kv_heads, head_dim, int8, shared_limit, forms);
  if (forms.columns) {
    constexpr int kTwoOnOneSm = 112 * 1024;
    const int groups = AttentionGroups(head_dim);
    const int columns = std::min(plan.tile_positions, most_tile_rows) * (heads / kv_heads);
    auto bytes = [&] { return MakeColumnsLayout(head_dim, int8, columns, groups / plan.blocks_per_tile).total; };
    plan.q8 = columns <= 8 ? 1 : 2;
    plan.splits = groups;
    plan.stages = ColumnsStages(head_dim, int8);
    plan.blocks_per_tile = 1;
    while (plan.blocks_per_tile < groups && (tiles * kv_heads * plan.blocks_per_tile < sm_count * 3 / 4 ||
                                             bytes() > std::min(kTwoOnOneSm, shared_limit)))
      plan.blocks_per_tile *= 2;
    plan.shared_bytes = bytes();
    if (plan.blocks_per_tile > 1) {
      plan.workspace_floats = static_cast<int64_t>(tiles) * kv_heads * groups * 8 * plan.q8 * (head_dim + 2);
      plan.counters = tiles * kv_heads;
    }
    return plan;
  }
  plan.splits = AttentionSplits(head_dim);
  const int rows = std::min(plan.tile_positions, most_tile_rows) * (heads / kv_heads);
  const int most = plan.splits / AttentionSplitsAtOnce(head_dim);  // at most 8: larger clusters are not portable
  // One wave of blocks for a few tiles; with many, blocks short enough to even out.
  plan.blocks_per_tile = head_dim == 64 ? 1 : 4;
  while (plan.blocks_per_tile < most && tiles * kv_heads * plan.blocks_per_tile < sm_count * 3 / 4)
    plan.blocks_per_tile *= 2;
  for (const bool deep : {true, false}) {
    plan.stages = AttentionStages(head_dim, deep);
    plan.shared_bytes = AttentionSharedBytes(head_dim, int8, plan.stages, rows, plan.blocks_per_tile);
    if (plan.shared_bytes <= shared_limit) break;
  }
  plan.cluster = clusters && plan.blocks_per_tile > 1;
  if (plan.blocks_per_tile > 1 && !clusters) {
    plan.workspace_floats = static_cast<int64_t>(tiles) * kv_heads * plan.splits * 16 * (head_dim + 2);
    plan.counters = tiles * kv_heads;
  }
  return plan;
}

}  // namespace voxrt::cuda_kernels
