// CUDA errors as Status. A sticky error (the context is lost) becomes kDeviceLost: all work on the device has ended.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/status.h"

namespace voxrt::cuda {

// Ok for cudaSuccess. `what` says what was attempted: "cannot copy the plan".
Status ToStatus(cudaError_t error, std::string_view what);

// "3.0 GB" and the like.
std::string FormatBytes(int64_t bytes);

}  // namespace voxrt::cuda
