// Implementation of random stored weights.
#include "support/weights.h"

#include <cmath>
#include <cstring>

namespace voxrt::test {

using quant::DType;
using quant::Format;
using quant::FormatKind;

TestWeight::TestWeight(const Format& format, int64_t rows, int64_t cols, bool with_bias, Random& random) {
  const float magnitude = 1.0f / std::sqrt(static_cast<float>(cols));  // outputs of order one
  weight_ = {.format = format, .rows = rows, .cols = cols};
  const int64_t count = rows * cols;
  const int64_t groups = format.group == 0 ? 1 : cols / format.group;
  const auto random_scale = [&](float typical) { return quant::F32ToBF16(typical * random.Uniform(0.5f, 1.5f)); };
  switch (format.kind) {
    case FormatKind::kFloat:
      data_.resize(static_cast<size_t>(count) * quant::DTypeBytes(format.dtype) / 4 + 1);
      for (int64_t i = 0; i < count; ++i) {
        const float value = random.Normal() * magnitude;
        auto* bytes = reinterpret_cast<std::byte*>(data_.data());
        if (format.dtype == DType::kF32) {
          std::memcpy(bytes + 4 * i, &value, 4);
        } else {
          const uint16_t half = format.dtype == DType::kBF16 ? quant::F32ToBF16(value) : quant::F32ToF16(value);
          std::memcpy(bytes + 2 * i, &half, 2);
        }
      }
      break;
    case FormatKind::kInt4:
      data_.resize(static_cast<size_t>(count / 8));
      for (uint32_t& word : data_) word = random.Bits();
      for (int64_t i = 0; i < rows * groups; ++i) scale_.push_back(random_scale(magnitude / 4));
      break;
    case FormatKind::kInt4Tile:
      data_.resize(static_cast<size_t>(count / 8));
      for (uint32_t& word : data_) word = random.Bits();
      for (int64_t i = 0; i < rows * groups; ++i) {
        scale_.push_back(random_scale(magnitude / 4));
        scale_.push_back(quant::F32ToBF16(random.Normal() * magnitude));
      }
      break;
    case FormatKind::kInt8:
      data_.resize(static_cast<size_t>(count / 4 + 1));
      for (uint32_t& word : data_) word = random.Bits();
      for (int64_t i = 0; i < rows * groups; ++i) scale_.push_back(random_scale(magnitude / 64));
      break;
  }
  weight_.data = data_.data();
  weight_.scale = scale_.empty() ? nullptr : scale_.data();
  for (int64_t i = 0; with_bias && i < rows; ++i) bias_.push_back(random.Normal());
}

backend::LinearBlock TestWeight::block() const { return {.weight = weight_, .bias = bias_}; }

Matrix TestWeight::Values() const {
  Matrix values(weight_.rows, weight_.cols);
  for (int64_t r = 0; r < weight_.rows; ++r) quant::DequantizeRow(weight_, r, &values.at(r, 0));
  return values;
}

std::vector<Format> AllFormats() {
  std::vector<Format> formats;
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    formats.push_back({.kind = FormatKind::kFloat, .dtype = dtype});
  for (int group : {32, 64, 128, 256}) {
    formats.push_back({.kind = FormatKind::kInt4, .group = group});
    formats.push_back({.kind = FormatKind::kInt4, .group = group, .int8_activations = true});
    formats.push_back({.kind = FormatKind::kInt4Tile, .group = group});
  }
  for (int group : {0, 32, 128}) {
    formats.push_back({.kind = FormatKind::kInt8, .group = group});
    formats.push_back({.kind = FormatKind::kInt8, .group = group, .int8_activations = true});
  }
  return formats;
}

bool Fits(const Format& format, int64_t rows, int64_t cols) {
  if (format.group != 0 && cols % format.group != 0) return false;
  if (format.kind == FormatKind::kInt4 && cols % 32 != 0) return false;
  if (format.kind == FormatKind::kInt4Tile && (rows % 8 != 0 || cols % 128 != 0)) return false;
  return true;
}

std::string TestName(const Format& format) {
  std::string name;
  for (char c : FormatName(format)) name += (c == ' ' || c == '-') ? '_' : c;
  return name;
}

}  // namespace voxrt::test
