// Weights of any shape and format for measurements: stretches of one random block.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"

namespace voxrt::bench {

// Outlives the weights that it prepares: some backends read them in place.
class RandomWeights {
 public:
  struct Spec {
    std::string name;
    backend::LinearRole role = backend::LinearRole::kPlain;
    quant::Format format;
    std::vector<int64_t> rows;  // of each block
    int64_t cols = 0;
    bool bias = false;
  };

  // For blocks of at most so many bytes and scales. `floats`: the bytes are small bf16 numbers, whole or as codes;
  // otherwise any.
  RandomWeights(int64_t most_bytes, int64_t most_scales, bool floats);

  // Adds what a product reads of it, scales included, to *bytes.
  Result<std::unique_ptr<backend::PreparedLinear>> Prepare(backend::Device& device, const Spec& spec, int64_t* bytes);
  // A number between -0.025 and 0.025.
  float Small(size_t i) const { return (static_cast<float>(random_[i % random_.size()]) / 255.0f - 0.5f) * 0.05f; }

 private:
  std::vector<uint8_t> random_;
  std::vector<uint16_t> scales_, scale_pairs_;
  std::deque<std::vector<float>> biases_;
  uint64_t next_offset_ = 0;
};

}  // namespace voxrt::bench
