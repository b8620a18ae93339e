// Scalar building blocks of the ref backend: element access with conversion, and the activation functions in fp64.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/view.h"
#include "quant/dtype.h"

namespace voxrt::backend {

inline float Load(const View& view, int64_t row, int64_t col) {
  return quant::LoadFloat(view.row_bytes(row), view.dtype, static_cast<size_t>(col));
}

inline std::vector<float> LoadRow(const View& view, int64_t row) {
  std::vector<float> values(static_cast<size_t>(view.cols));
  for (int64_t col = 0; col < view.cols; ++col) values[static_cast<size_t>(col)] = Load(view, row, col);
  return values;
}

// Rounds to fp32, then to the view's type: what a backend with fp32 accumulators does.
inline void Store(const View& view, int64_t row, int64_t col, double value) {
  const auto rounded = static_cast<float>(value);
  switch (view.dtype) {
    case quant::DType::kBF16:
      reinterpret_cast<uint16_t*>(view.row_bytes(row))[col] = quant::F32ToBF16(rounded);
      break;
    case quant::DType::kF16:
      reinterpret_cast<uint16_t*>(view.row_bytes(row))[col] = quant::F32ToF16(rounded);
      break;
    default:
      reinterpret_cast<float*>(view.row_bytes(row))[col] = rounded;
      break;
  }
}

inline double Gelu(double x) { return 0.5 * x * (1.0 + std::erf(x * std::sqrt(0.5))); }

inline double Silu(double x) { return x / (1.0 + std::exp(-x)); }

}  // namespace voxrt::backend
