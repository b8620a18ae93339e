// The int8 form of one cached K or V row of one head (KvSpec::dtype kI8), as every backend stores it: symmetric, one
// fp32 scale per row and head. Scalar definition; a backend may vectorise it with the same operations in the same
// order.
#pragma once

#include <cstdint>
#include <span>

namespace voxrt::backend {

// scale = max|x| / 127, code = rint(x * (127 / max|x|)) with ties to even; both 0 where max|x| < kSmallestKvMagnitude,
// so that the quotient cannot overflow. Value = code * scale in fp32.
inline constexpr float kSmallestKvMagnitude = 1e-30f;

// Returns the scale.
float EncodeKvInt8(std::span<const float> values, std::span<int8_t> codes);

}  // namespace voxrt::backend
