// The ref backend: scalar, single-threaded, obviously right. It is the oracle that every other backend is tested
// against, the template for a new one, and what runs where no other backend was compiled in. It does nothing for speed.
//
// Arithmetic: every sum runs in rising order in fp64 and is rounded once, when the result is stored. Weights are
// multiplied as quant::Dequantize defines them; formats with int8 activations use the integer form of
// docs/model.md 12.3. All views may be F32, F16 or BF16 where the contract says "activation type".
#pragma once

#include <memory>

#include "backend/device.h"
#include "base/status.h"

namespace voxrt::backend {

// kInvalidArgument where options.ordinal is not 0. options.threads is ignored.
Result<std::unique_ptr<Device>> OpenRef(const DeviceOptions& options);

}  // namespace voxrt::backend
