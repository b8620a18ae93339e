// Instances and launcher of the attention kernel.
#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {
namespace {

template <int kHeadDim, bool kInt8>
cudaError_t LaunchInstance(const AttentionParams& p, const AttentionPlan& plan, const LaunchContext& context) {
  // Idle blocks where half the SMs would have none: no SM then gets two blocks of the next phase.
  const int blocks = p.cache.kv_heads * plan.blocks_per_tile;
  const int idle_tiles = blocks * p.tiles * 2 <= context.sm_count ? 1 : 0;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(p.tiles + idle_tiles));
  const int cluster = plan.cluster ? plan.blocks_per_tile : 1;
  constexpr int kDeep = AttentionStages(kHeadDim, true), kShallow = AttentionStages(kHeadDim, false);
  if (plan.stages == kDeep)
    return Launch(AttentionKernel<kHeadDim, kInt8, kDeep>, p, grid, kAttentionWarps * 32, plan.shared_bytes, context,
                  cluster);
  return Launch(AttentionKernel<kHeadDim, kInt8, kShallow>, p, grid, kAttentionWarps * 32, plan.shared_bytes, context,
                cluster);
}

}  // namespace

cudaError_t LaunchAttention(const AttentionParams& params, const AttentionPlan& plan, const LaunchContext& context) {
  AttentionParams p = params;
  p.splits = plan.splits;
  p.blocks_per_tile = plan.blocks_per_tile;
  p.cluster = plan.cluster ? 1 : 0;
  const bool int8 = p.cache.scale != nullptr;
  if (p.cache.head_dim == 64)
    return int8 ? LaunchInstance<64, true>(p, plan, context) : LaunchInstance<64, false>(p, plan, context);
  return int8 ? LaunchInstance<128, true>(p, plan, context) : LaunchInstance<128, false>(p, plan, context);
}

}  // namespace voxrt::cuda_kernels
