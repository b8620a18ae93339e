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

cudaError_t CountClusters(int* clusters) {
  const auto kernel = LinearHopperKernel<WeightFormat::kBf16, 8>;
  constexpr int kBytes = 160 * 1024;  // one block an SM
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(4);
  config.blockDim = dim3(HopperThreads(HopperMostWarps(8)));
  config.dynamicSmemBytes = kBytes;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 4, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
}

}  // namespace voxrt::cuda_kernels
