// The one pass over all weights at load: finds NaN and infinities, and brings the mapped pages into memory on the way.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "weights/tensor_table.h"

namespace voxrt::weights {

// kInvalidModel names the first tensor (in file order) with a value that is not finite. Integer tensors are only read.
// `threads` 0 = one per core. `progress` is called on the calling thread.
Status ScanValues(const TensorMap& tensors, int threads,
                  const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress);

}  // namespace voxrt::weights
