// The CUDA backend's door: everything else in this folder is private.
#pragma once

#include <memory>

#include "backend/device.h"
#include "base/status.h"

namespace voxrt::backend {

// Opens GPU `options.ordinal`. kUnavailable, in one line, where there is no driver, no device, or one older than sm_80.
Result<std::unique_ptr<Device>> OpenCuda(const DeviceOptions& options);

}  // namespace voxrt::backend
