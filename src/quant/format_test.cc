#include "quant/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace voxrt::quant {
namespace {

TEST(FormatTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(RoundToBF16(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(RoundToBF16(1.0f + 3 * 0x1p-8f), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(RoundToBF16(std::nanf(""))));
}

TEST(FormatTest, HalfPrecisionRoundTripsEveryFinitePattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00u) == 0x7c00u) continue;
    ASSERT_EQ(F32ToF16(F16ToF32(static_cast<uint16_t>(bits))), bits);
  }
}

TEST(FormatTest, AsymmetricValueOfTheWorkedExample) {
  const uint16_t scale = F32ToBF16(0.0751953125f);
  const uint16_t zero = F32ToBF16(0.0874023438f);
  EXPECT_FLOAT_EQ(AsymmetricValue(0, scale, zero), -0.515625f);
  EXPECT_FLOAT_EQ(AsymmetricValue(8, scale, zero), 0.0874023438f);
  EXPECT_FLOAT_EQ(AsymmetricValue(15, scale, zero), 0.61328125f);
}

TEST(FormatTest, AsymmetricValueIsRoundedOnce) {
  // 1 * s + z = 1 + 2^-8 + 2^-33: just above the tie, so it must go up; an intermediate fp32 rounding would lose the
  // excess.
  const uint16_t scale = F32ToBF16(1.0f);
  const uint16_t tie = F32ToBF16(0x1p-8f);
  EXPECT_EQ(AsymmetricValue(9, scale, tie), 1.0f);
  const uint16_t above = F32ToBF16(0x1p-8f + 0x1p-15f);
  EXPECT_EQ(AsymmetricValue(9, scale, above), 1.0f + 0x1p-7f);
  const uint16_t far = F32ToBF16(0x1p-33f);
  EXPECT_EQ(AsymmetricValue(9, F32ToBF16(1.0f + 0x1p-7f), far), 1.0f + 0x1p-7f);
}

TEST(FormatTest, NamesSayKindGroupAndActivations) {
  EXPECT_EQ(FormatName({}), "bf16");
  EXPECT_EQ(FormatName({.kind = FormatKind::kInt4, .group = 128}), "4w g128");
  EXPECT_EQ(FormatName({.kind = FormatKind::kInt4, .group = 32, .int8_activations = true}), "8da4w g32");
  EXPECT_EQ(FormatName({.kind = FormatKind::kInt8}), "8w");
}

TEST(FormatTest, NamesReadBack) {
  for (const Format& format : {Format{}, Format{.dtype = DType::kF32}, Format{.kind = FormatKind::kInt4, .group = 64},
                               Format{.kind = FormatKind::kInt4Tile, .group = 256}, Format{.kind = FormatKind::kInt8},
                               Format{.kind = FormatKind::kInt8, .group = 32, .int8_activations = true}}) {
    EXPECT_EQ(ParseFormatName(FormatName(format)), format) << FormatName(format);
  }
  for (const char* name : {"", "4w", "4w g48", "8w g0", "9w", "8da4w tile_packed_to_4d g32", "8w "}) {
    EXPECT_EQ(ParseFormatName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace voxrt::quant
