// Definition of the int8 cache row.
#include "backend/kv_int8.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace voxrt::backend {

float EncodeKvInt8(std::span<const float> values, std::span<int8_t> codes) {
  VOXRT_CHECK(values.size() == codes.size());
  float largest = 0.0f;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  if (largest < kSmallestKvMagnitude) {
    std::fill(codes.begin(), codes.end(), int8_t{0});
    return 0.0f;
  }
  const float inverse = 127.0f / largest;
  for (size_t i = 0; i < values.size(); ++i) codes[i] = static_cast<int8_t>(std::nearbyintf(values[i] * inverse));
  return largest / 127.0f;
}

}  // namespace voxrt::backend
