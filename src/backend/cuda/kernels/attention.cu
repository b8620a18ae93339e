// Instances and launcher of the attention kernel.
#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {
namespace {

template <int kHeadDim, bool kInt8>
cudaError_t LaunchInstance(const AttentionParams& p, const AttentionPlan& plan, const LaunchContext& context) {
  const dim3 grid(static_cast<unsigned>(plan.blocks));
  constexpr int kThreads = kAttentionWarps * 32;
  if (plan.q8 == 1) return Launch(AttentionKernel<kHeadDim, kInt8, 1>, p, grid, kThreads, plan.shared_bytes, context);
  return Launch(AttentionKernel<kHeadDim, kInt8, 2>, p, grid, kThreads, plan.shared_bytes, context);
}

}  // namespace

cudaError_t LaunchAttention(const AttentionParams& params, const AttentionPlan& plan, const LaunchContext& context) {
  const AttentionParams p = WithPlan(params, plan);
  const bool int8 = p.cache.scale != nullptr;
  if (p.cache.head_dim == 64)
    return int8 ? LaunchInstance<64, true>(p, plan, context) : LaunchInstance<64, false>(p, plan, context);
  return int8 ? LaunchInstance<128, true>(p, plan, context) : LaunchInstance<128, false>(p, plan, context);
}

}  // namespace voxrt::cuda_kernels
