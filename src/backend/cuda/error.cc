#include "backend/cuda/error.h"

#include <fmt/format.h>

namespace voxrt::cuda {

Status ToStatus(cudaError_t error, std::string_view what) {
  switch (error) {
    case cudaSuccess:
      return {};
    case cudaErrorMemoryAllocation:
      return {StatusCode::kResourceExhausted,
              fmt::format("{}: the GPU is out of memory; use fewer sessions or a smaller format", what)};
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
      return {StatusCode::kUnavailable, fmt::format("{}: {}", what, cudaGetErrorString(error))};
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorNotSupported:
    case cudaErrorNoKernelImageForDevice:
      return {StatusCode::kInternal, fmt::format("{}: {}", what, cudaGetErrorString(error))};
    default:
      return {StatusCode::kDeviceLost, fmt::format("{}: {}; all sessions on this GPU have ended, restart the program",
                                                   what, cudaGetErrorString(error))};
  }
}

std::string FormatBytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1000000000) return fmt::format("{:.2f} GB", value / 1e9);
  if (bytes >= 1000000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{} bytes", bytes);
}

}  // namespace voxrt::cuda
