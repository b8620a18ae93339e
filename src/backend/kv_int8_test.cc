#include "backend/kv_int8.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace voxrt::backend {
namespace {

TEST(KvInt8, LargestMagnitudeBecomes127AndTiesGoToEven) {
  const std::array<float, 5> values = {-254.0f, 127.0f, 3.0f, 5.0f, 0.0f};  // half codes: -127, 63.5, 1.5, 2.5, 0
  std::array<int8_t, 5> codes{};
  EXPECT_EQ(EncodeKvInt8(values, codes), 2.0f);
  EXPECT_EQ(codes, (std::array<int8_t, 5>{-127, 64, 2, 2, 0}));
}

TEST(KvInt8, ErrorIsAtMostHalfAScale) {
  std::array<float, 128> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.7f * static_cast<float>(i)) * 3.1f;
  std::array<int8_t, 128> codes{};
  const float scale = EncodeKvInt8(values, codes);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::fabs(static_cast<float>(codes[i]) * scale - values[i]), 0.5f * scale * (1.0f + 1e-5f));
  }
}

TEST(KvInt8, TinyAndZeroRowsBecomeZeroInsteadOfOverflowing) {
  const std::array<float, 3> zeros = {0.0f, -0.0f, 0.0f};
  const std::array<float, 3> tiny = {1e-38f, -1e-40f, 1e-31f};
  std::array<int8_t, 3> codes = {1, 1, 1};
  EXPECT_EQ(EncodeKvInt8(zeros, codes), 0.0f);
  EXPECT_EQ(codes, (std::array<int8_t, 3>{0, 0, 0}));
  codes = {1, 1, 1};
  EXPECT_EQ(EncodeKvInt8(tiny, codes), 0.0f);
  EXPECT_EQ(codes, (std::array<int8_t, 3>{0, 0, 0}));
}

}  // namespace
}  // namespace voxrt::backend
