// Instances and launcher of the attention kernel.
#include <algorithm>

#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {
namespace {

template <int kHeadDim, bool kInt8>
cudaError_t LaunchInstance(const AttentionParams& p, const AttentionPlan& plan, const LaunchContext& context) {
  // A phase that fits one wave takes one block of every SM, idle ones included: see shapes.h.
  const int blocks = p.cache.kv_heads * plan.blocks_per_tile * p.tiles;
  const dim3 grid(static_cast<unsigned>(std::max(blocks, context.device.sm_count)));
  constexpr int kThreads = kAttentionWarps * 32;
  if (plan.q8 == 1) return Launch(AttentionKernel<kHeadDim, kInt8, 1>, p, grid, kThreads, plan.shared_bytes, context);
  return Launch(AttentionKernel<kHeadDim, kInt8, 2>, p, grid, kThreads, plan.shared_bytes, context);
}

}  // namespace

cudaError_t LaunchAttention(const AttentionParams& params, const AttentionPlan& plan, const LaunchContext& context) {
  AttentionParams p = params;
  p.blocks_per_tile = plan.blocks_per_tile;
  p.group_reciprocal = plan.group_reciprocal;
  const bool int8 = p.cache.scale != nullptr;
  if (p.cache.head_dim == 64)
    return int8 ? LaunchInstance<64, true>(p, plan, context) : LaunchInstance<64, false>(p, plan, context);
  return int8 ? LaunchInstance<128, true>(p, plan, context) : LaunchInstance<128, false>(p, plan, context);
}

}  // namespace voxrt::cuda_kernels
