#include "engine/sampling.h"

#include <algorithm>
#include <cmath>

namespace voxrt::engine {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double UniformForToken(uint64_t seed, int64_t token_index) {
  const auto index = static_cast<uint64_t>(token_index);
  const auto block = Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

int32_t SampleToken(std::span<const float> logits, float temperature, double uniform) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += static_cast<double>(std::exp((logit - largest) / temperature));
  const double wanted = uniform * total;
  double sum = 0.0;
  int32_t last_possible = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto weight = static_cast<double>(std::exp((logits[id] - largest) / temperature));
    if (weight > 0.0) last_possible = static_cast<int32_t>(id);
    sum += weight;
    if (sum > wanted) return static_cast<int32_t>(id);
  }
  return last_possible;  // rounding of the sum only
}

}  // namespace voxrt::engine
