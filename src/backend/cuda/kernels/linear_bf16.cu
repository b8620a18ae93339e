// Linear kernels of bf16 weights, and the choice of format.
#include "backend/cuda/kernels/linear_dispatch.cuh"

namespace voxrt::cuda_kernels {

cudaError_t LaunchLinearInt4(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context);
cudaError_t LaunchLinearInt8(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context);

cudaError_t LaunchLinear(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context) {
  switch (params.weight.format) {
    case WeightFormat::kInt4G128:
    case WeightFormat::kInt4G32:
      return LaunchLinearInt4(params, plan, context);
    case WeightFormat::kInt8Row:
    case WeightFormat::kInt8G32:
      return LaunchLinearInt8(params, plan, context);
    case WeightFormat::kBf16:
      break;
  }
  return LaunchLinearFormat<WeightFormat::kBf16>(params, plan, context);
}

}  // namespace voxrt::cuda_kernels
