// Linear kernels of the 4-bit weight formats.
#include "backend/cuda/kernels/linear_dispatch.cuh"

namespace voxrt::cuda_kernels {

cudaError_t LaunchLinearInt4(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context) {
  return params.weight.format == WeightFormat::kInt4G128
             ? LaunchLinearFormat<WeightFormat::kInt4G128>(params, plan, context)
             : LaunchLinearFormat<WeightFormat::kInt4G32>(params, plan, context);
}

}  // namespace voxrt::cuda_kernels
