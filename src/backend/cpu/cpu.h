// The SIMD CPU backend: one arithmetic per result for every row count, weights multiplied in place from the caller's
// memory.
#pragma once

#include <memory>

#include "backend/device.h"
#include "base/status.h"

namespace voxrt::backend {

// kUnavailable on a processor below the lowest compiled instruction set (x86: SSE4.2).
Result<std::unique_ptr<Device>> OpenCpu(const DeviceOptions& options);

}  // namespace voxrt::backend
