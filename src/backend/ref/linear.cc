// Products with stored weights. Two forms: fp64 dot products with the dequantized weight, and for formats with int8
// activations the integer form of docs/model.md 12.3, where only the two scales are applied in floating point.
#include "backend/ref/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/ref/scalar.h"
#include "base/check.h"

namespace voxrt::backend {
namespace {

int64_t RowsOf(const LinearSpec& spec) {
  int64_t rows = 0;
  for (const LinearBlock& block : spec.blocks) rows += block.weight.rows;
  return rows;
}

// One row of activations in asymmetric int8 (docs/model.md 12.3), in fp32 exactly as written there.
struct QuantizedRow {
  std::vector<int32_t> codes;  // qx - zx
  float scale = 0.0f;
};

QuantizedRow QuantizeRow(const std::vector<float>& x) {
  const float lo = std::min(*std::min_element(x.begin(), x.end()), 0.0f);
  const float hi = std::max(*std::max_element(x.begin(), x.end()), 0.0f);
  QuantizedRow row;
  row.scale = std::max((hi - lo) / 255.0f, std::numeric_limits<float>::min());
  const float zero = std::clamp(-128.0f - std::nearbyint(lo / row.scale), -128.0f, 127.0f);
  const float inverse = 1.0f / row.scale;
  for (float value : x) {
    const float code = std::clamp(std::nearbyint(value * inverse) + zero, -128.0f, 127.0f);
    row.codes.push_back(static_cast<int32_t>(code - zero));
  }
  return row;
}

// Stored symmetric code of kInt4 or kInt8 (docs/model.md 12.7).
int32_t Code(const quant::HostLinear& weight, int64_t row, int64_t col) {
  if (weight.format.kind == quant::FormatKind::kInt8) {
    return static_cast<const int8_t*>(weight.data)[row * weight.cols + col];
  }
  const uint8_t byte = static_cast<const uint8_t*>(weight.data)[row * (weight.cols / 2) + col / 32 * 16 + col % 16];
  return (col % 32 < 16 ? byte & 15 : byte >> 4) - 8;
}

// One output of the integer form: sx * sum over groups of s[g] * (integer sum).
double IntegerDot(const QuantizedRow& x, const quant::HostLinear& weight, int64_t row,
                  const std::vector<int32_t>& codes) {
  const int64_t group = weight.format.group == 0 ? weight.cols : weight.format.group;
  const int64_t groups = weight.cols / group;
  double sum = 0.0;
  for (int64_t g = 0; g < groups; ++g) {
    int64_t integer = 0;
    for (int64_t col = g * group; col < (g + 1) * group; ++col) {
      integer += int64_t{x.codes[static_cast<size_t>(col)]} * codes[static_cast<size_t>(col)];
    }
    sum += static_cast<double>(quant::BF16ToF32(weight.scale[row * groups + g])) * static_cast<double>(integer);
  }
  return static_cast<double>(x.scale) * sum;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace

RefLinear::RefLinear(const LinearSpec& spec)
    : PreparedLinear(RowsOf(spec), spec.blocks[0].weight.cols, spec.role), blocks_(spec.blocks) {}

std::vector<float> RefLinear::Row(int64_t row) const {
  std::vector<float> values(static_cast<size_t>(cols()));
  for (const LinearBlock& block : blocks_) {
    if (row < block.weight.rows) {
      quant::DequantizeRow(block.weight, row, values.data());
      return values;
    }
    row -= block.weight.rows;
  }
  VOXRT_CHECK(false && "row is beyond the weight");
  return values;
}

std::vector<double> RefLinear::Multiply(const View& x) const {
  std::vector<std::vector<float>> inputs;
  std::vector<QuantizedRow> quantized;
  for (int64_t r = 0; r < x.rows; ++r) {
    inputs.push_back(LoadRow(x, r));
    quantized.push_back(QuantizeRow(inputs.back()));
  }
  std::vector<double> y(static_cast<size_t>(x.rows * rows()));
  std::vector<float> values(static_cast<size_t>(cols()));
  std::vector<int32_t> codes(static_cast<size_t>(cols()));
  int64_t first = 0;  // row of the stacked weight at which the block begins
  for (const LinearBlock& block : blocks_) {
    const quant::HostLinear& weight = block.weight;
    for (int64_t n = 0; n < weight.rows; ++n) {
      if (weight.format.int8_activations) {
        for (int64_t col = 0; col < weight.cols; ++col) codes[static_cast<size_t>(col)] = Code(weight, n, col);
      } else {
        quant::DequantizeRow(weight, n, values.data());
      }
      const double bias = block.bias.empty() ? 0.0 : static_cast<double>(block.bias[static_cast<size_t>(n)]);
      for (int64_t r = 0; r < x.rows; ++r) {
        const auto at = static_cast<size_t>(r);
        const double dot =
            weight.format.int8_activations ? IntegerDot(quantized[at], weight, n, codes) : Dot(inputs[at], values);
        y[static_cast<size_t>(r * rows() + first + n)] = dot + bias;
      }
    }
    first += weight.rows;
  }
  return y;
}

}  // namespace voxrt::backend
