// Linear kernels of the 8-bit weight formats.
#include "backend/cuda/kernels/linear_dispatch.cuh"

namespace voxrt::cuda_kernels {

cudaError_t LaunchLinearInt8(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context) {
  return params.weight.format == WeightFormat::kInt8Row
             ? LaunchLinearFormat<WeightFormat::kInt8Row>(params, plan, context)
             : LaunchLinearFormat<WeightFormat::kInt8G32>(params, plan, context);
}

}  // namespace voxrt::cuda_kernels
