// Rotary phases: cos and sin of position x frequency, for any position (docs/model.md 8.2). The frequency is rounded to
// fp32 as trained, the product and the reduction are fp64, the result is fp32: exact beyond 2^29 positions, no table,
// no re-anchoring.
#pragma once

#include <cstdint>
#include <vector>

namespace voxrt::model {

class RopePhases {
 public:
  RopePhases(int head_dim, double theta);

  int half_dim() const { return static_cast<int>(frequencies_.size()); }
  // Appends half_dim() values each to *cos and *sin.
  void Append(int64_t position, std::vector<float>* cos, std::vector<float>* sin) const;

 private:
  std::vector<double> frequencies_;  // fp32 values
};

}  // namespace voxrt::model
