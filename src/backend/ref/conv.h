// Convolution weights of the ref backend, widened to fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/linear.h"

namespace voxrt::backend {

class RefConv final : public PreparedConv {
 public:
  explicit RefConv(const ConvSpec& spec)
      : PreparedConv(spec.out_channels, spec.in_channels, spec.stride), bias_(spec.bias.begin(), spec.bias.end()) {
    const int64_t count = spec.out_channels * spec.in_channels * 3;
    for (int64_t i = 0; i < count; ++i) {
      weight_.push_back(quant::LoadFloat(spec.weight, spec.dtype, static_cast<size_t>(i)));
    }
  }

  float weight(int64_t out, int64_t in, int64_t tap) const {
    return weight_[static_cast<size_t>((out * in_channels() + in) * 3 + tap)];
  }
  float bias(int64_t out) const { return bias_[static_cast<size_t>(out)]; }

 private:
  std::vector<float> weight_;  // [out_channels, in_channels, 3]
  std::vector<float> bias_;    // [out_channels]
};

}  // namespace voxrt::backend
