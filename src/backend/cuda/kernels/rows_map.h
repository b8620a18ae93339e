// Maps of rows for bulk tensor copies (compute capability 9.0), made on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/kernels/params.h"

namespace voxrt::cuda_kernels {

// bf16 rows of `cols` elements, `stride` elements apart, 16-byte aligned; copies take `box_rows` rows of 64 columns, in
// the order of GroupMmaRows, and zeros for rows that do not exist.
cudaError_t MakeRowsMap(const void* data, int64_t rows, int64_t cols, int64_t stride, int box_rows, RowsMap* map);

}  // namespace voxrt::cuda_kernels
