// Implementation of the computed tolerances.
#include "support/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace voxrt::test {
namespace {

using quant::DType;
using quant::FormatKind;

constexpr double kU32 = 0x1p-24;
constexpr double kUBF16 = 0x1p-8;  // 8 significant bits

// 8da4w / 8da8w: integer sums are exact, so only the per-group products with scales and their addition round. Magnitude
// of a group: scale * sum (|qx| + |zx|) |q|, because a backend may subtract the zero point's part afterwards.
double IntegerError(const Matrix& x, int64_t row, const TestWeight& weight, int64_t n, const Matrix& values) {
  float lo = 0.0f;
  float hi = 0.0f;
  for (int64_t k = 0; k < x.cols; ++k) {
    lo = std::min(lo, x.at(row, k));
    hi = std::max(hi, x.at(row, k));
  }
  const double scale = std::max((static_cast<double>(hi) - static_cast<double>(lo)) / 255.0,
                                static_cast<double>(std::numeric_limits<float>::min()));
  const double zero = std::fabs(-128.0 - static_cast<double>(lo) / scale) + 1.0;
  double sum = 0.0;
  for (int64_t k = 0; k < x.cols; ++k) {
    sum +=
        (std::fabs(static_cast<double>(x.at(row, k))) + scale * zero) * std::fabs(static_cast<double>(values.at(n, k)));
  }
  const int group = weight.weight().format.group;
  return SumError(group == 0 ? 1 : x.cols / group) * sum;
}

double FloatError(const Matrix& x, int64_t row, const Matrix& values, int64_t n, bool weight_is_rounded) {
  double magnitude = 0.0;
  double squares = 0.0;
  for (int64_t k = 0; k < x.cols; ++k) {
    const double term = static_cast<double>(x.at(row, k)) * static_cast<double>(values.at(n, k));
    magnitude += std::fabs(term);
    squares += term * term;
  }
  return SumError(x.cols) * magnitude + (weight_is_rounded ? 6.0 * kUBF16 * std::sqrt(squares) : 0.0);
}

// One row, one query head.
void OneHeadTolerance(const AttentionRun& run, int64_t window, const Matrix& qkv, const Matrix& expected, int64_t row,
                      int head, Matrix& allowed) {
  const int dim = run.head_dim();
  const int64_t first = std::max<int64_t>(0, row - window + 1);
  const int64_t k_col = (run.heads + head / (run.heads / run.kv_heads())) * dim;
  const int64_t v_col = k_col + int64_t{run.kv_heads()} * dim;
  std::vector<double> p;
  double largest_magnitude = 0.0;
  for (int64_t j = first; j <= row; ++j) {
    double score = 0.0;
    double magnitude = 0.0;
    for (int d = 0; d < dim; ++d) {
      const double term = static_cast<double>(qkv.at(row, head * dim + d)) * static_cast<double>(qkv.at(j, k_col + d));
      score += term;
      magnitude += std::fabs(term);
    }
    p.push_back(score / std::sqrt(static_cast<double>(dim)));
    largest_magnitude = std::max(largest_magnitude, magnitude / std::sqrt(static_cast<double>(dim)));
  }
  const double top = *std::max_element(p.begin(), p.end());
  const double range = top - *std::min_element(p.begin(), p.end());
  double total = 0.0;
  for (double& value : p) total += value = std::exp(value - top);
  const auto n = static_cast<int64_t>(p.size());
  const double relative = 2.0 * SumError(dim) * largest_magnitude + 2.0 * SumError(n) + (8.0 + 2.0 * range) * 0x1p-24;
  for (int d = 0; d < dim; ++d) {
    double weighted = 0.0;
    double squares = 0.0;
    for (int64_t j = first; j <= row; ++j) {
      const double term = p[static_cast<size_t>(j - first)] / total * static_cast<double>(qkv.at(j, v_col + d));
      weighted += std::fabs(term);
      squares += term * term;
    }
    const int64_t at = head * dim + d;
    // A device of shorter activations may round the weights before it multiplies them with V.
    const double operand = run.activation == DType::kF32 ? 0.0
                                                         : 6.0 * UnitRoundoff(run.activation) * std::sqrt(squares) +
                                                               UnitRoundoff(run.activation) * weighted;
    allowed.at(row, at) = static_cast<float>(relative * weighted + operand +
                                             ResultError(static_cast<double>(expected.at(row, at)), run.activation));
  }
}

}  // namespace

double UnitRoundoff(DType dtype) { return dtype == DType::kBF16 ? kUBF16 : dtype == DType::kF16 ? 0x1p-11 : kU32; }

double SumError(int64_t n) { return 4.0 * (std::sqrt(static_cast<double>(n)) + 4.0) * kU32; }

double ResultError(double value, DType dtype) {
  // Smallest F16 subnormal: below it the error is absolute.
  return 2.0 * UnitRoundoff(dtype) * std::fabs(value) + (dtype == DType::kF16 ? 0x1p-24 : 1e-37);
}

Matrix LinearTolerance(const Matrix& x, const TestWeight& weight) {
  const Matrix values = weight.Values();
  const quant::Format& format = weight.weight().format;
  Matrix tolerance(x.rows, weight.weight().rows);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t n = 0; n < weight.weight().rows; ++n) {
      const double product = format.int8_activations ? IntegerError(x, r, weight, n, values)
                                                     : FloatError(x, r, values, n, format.kind != FormatKind::kFloat);
      const double bias = weight.bias().empty() ? 0.0 : static_cast<double>(weight.bias()[static_cast<size_t>(n)]);
      tolerance.at(r, n) = static_cast<float>(product + 2.0 * kU32 * std::fabs(bias));
    }
  }
  return tolerance;
}

double GeluTolerance(double y, double error) {
  const double value = 0.5 * y * (1.0 + std::erf(y * std::sqrt(0.5)));
  // |gelu'| <= 1.13; erf in fp32 is good to 8 units of its own value (at most 1), the product to 4.
  return 1.13 * error + 0.5 * std::fabs(y) * 8.0 * kU32 + 4.0 * kU32 * std::fabs(value);
}

double PairTolerance(double gate, double gate_error, double up, double up_error) {
  const double silu = gate / (1.0 + std::exp(-gate));
  const double silu_error =
      1.1 * gate_error + 8.0 * kU32 * std::fabs(silu);  // |silu'| <= 1.1; exp and division in fp32
  return silu_error * std::fabs(up) + std::fabs(silu) * up_error + silu_error * up_error +
         2.0 * kU32 * std::fabs(silu * up);
}

Matrix AttentionTolerance(const AttentionRun& run, int64_t window, const Matrix& qkv, const Matrix& expected) {
  Matrix allowed(expected.rows, expected.cols);
  for (int64_t row = 0; row < expected.rows; ++row) {
    for (int head = 0; head < run.heads; ++head) OneHeadTolerance(run, window, qkv, expected, row, head, allowed);
  }
  return allowed;
}

}  // namespace voxrt::test
