// One launch with an optional programmatic edge to the kernel before it.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {

template <typename Params>
cudaError_t Launch(void (*kernel)(Params), const Params& params, dim3 grid, int threads, int shared_bytes,
                   const LaunchContext& context, int cluster = 1) {
  // One split of the SM's memory for all kernels: blocks of two phases can only share an SM that need not be
  // reconfigured.
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess && shared_bytes > 48 * 1024)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = context.stream;
  cudaLaunchAttribute attributes[2];
  config.attrs = attributes;
  auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
    attributes[config.numAttrs].id = id;
    return attributes[config.numAttrs++].val;
  };
  if (context.programmatic)
    add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed = 1;
  if (cluster > 1) {
    auto& dimension = add(cudaLaunchAttributeClusterDimension).clusterDim;
    dimension.x = static_cast<unsigned>(cluster), dimension.y = dimension.z = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace voxrt::cuda_kernels
