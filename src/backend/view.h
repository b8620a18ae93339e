// View: a non-owning rank-2 window on device memory. Heads and taps of a convolution are arguments of operations, not
// dimensions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/dtype.h"

namespace voxrt::backend {

struct View {
  void* data = nullptr;  // device memory (host memory for ref and cpu)
  quant::DType dtype = quant::DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, >= cols

  bool empty() const { return data == nullptr; }
  std::byte* row_bytes(int64_t row) const {
    return static_cast<std::byte*>(data) + static_cast<size_t>(row * stride) * quant::DTypeBytes(dtype);
  }
  // Rows [begin, begin + count).
  View Rows(int64_t begin, int64_t count) const { return {row_bytes(begin), dtype, count, cols, stride}; }
  // Columns [begin, begin + count).
  View Cols(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + static_cast<size_t>(begin) * quant::DTypeBytes(dtype), dtype, rows, count,
            stride};
  }
};

}  // namespace voxrt::backend
