// Stored weights of any format with random content, in canonical storage: input of backend tests. The codes are random,
// not the product of a quantizer, so that every code and every scale pattern occurs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/linear.h"
#include "support/rig.h"

namespace voxrt::test {

// Owns the memory of one weight with or without bias.
class TestWeight {
 public:
  TestWeight(const quant::Format& format, int64_t rows, int64_t cols, bool with_bias, Random& random);
  TestWeight(const TestWeight&) = delete;
  TestWeight& operator=(const TestWeight&) = delete;

  backend::LinearBlock block() const;
  const quant::HostLinear& weight() const { return weight_; }
  const std::vector<float>& bias() const { return bias_; }
  // Dequantized, [rows, cols].
  Matrix Values() const;

 private:
  quant::HostLinear weight_;
  std::vector<uint32_t> data_;  // words, so that every element type is aligned
  std::vector<uint16_t> scale_;
  std::vector<float> bias_;
};

// Every format of docs/model.md 12 with every group, plus the float types.
std::vector<quant::Format> AllFormats();
// May a [rows, cols] weight be stored in this format?
bool Fits(const quant::Format& format, int64_t rows, int64_t cols);
// Name for a test: letters, digits and underscores.
std::string TestName(const quant::Format& format);

}  // namespace voxrt::test
