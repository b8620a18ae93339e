#include "model/rope.h"

#include <cmath>

namespace voxrt::model {

RopePhases::RopePhases(int head_dim, double theta) {
  for (int i = 0; i < head_dim / 2; ++i) {
    // fp32 at each step, as the reference computes it: exponent, power, reciprocal.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto power =
        static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
    frequencies_.push_back(static_cast<double>(1.0f / power));
  }
}

void RopePhases::Append(int64_t position, std::vector<float>* cos, std::vector<float>* sin) const {
  for (const double frequency : frequencies_) {
    const double angle = static_cast<double>(position) * frequency;
    cos->push_back(static_cast<float>(std::cos(angle)));
    sin->push_back(static_cast<float>(std::sin(angle)));
  }
}

}  // namespace voxrt::model
