#include "weights/value_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace voxrt::weights {
namespace {

using quant::DType;
using ::testing::EndsWith;
using ::testing::HasSubstr;

Tensor TensorOver(const std::string& bytes, DType dtype) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.data = reinterpret_cast<const std::byte*>(bytes.data());
  tensor.bytes = static_cast<int64_t>(bytes.size());
  return tensor;
}

std::string ErrorOf(const TensorMap& tensors, int threads = 2) {
  const Status status = ScanValues(tensors, threads, {});
  return status.ok() ? "" : status.message();
}

void Set(std::string* bytes, size_t index, uint16_t bits) { std::memcpy(bytes->data() + 2 * index, &bits, 2); }

TEST(ValueScan, EverySixteenBitPatternIsJudgedRight) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      const float value = dtype == DType::kBF16 ? quant::BF16ToF32(pattern) : quant::F16ToF32(pattern);
      std::string bytes(8, '\xff');  // neighbours with all mantissa bits set, but finite
      for (size_t i = 0; i < 4; ++i) Set(&bytes, i, 0x7b7f);
      Set(&bytes, bits % 4, pattern);
      ASSERT_EQ(ErrorOf({{"t", TensorOver(bytes, dtype)}}, 1).empty(), std::isfinite(value)) << bits;
    }
  }
}

TEST(ValueScan, FullFloatsAreJudgedByAllTheirBits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::pair<float, bool> kCases[] = {{0.0f, true},
                                           {std::numeric_limits<float>::max(), true},
                                           {-std::numeric_limits<float>::max(), true},
                                           {std::numeric_limits<float>::denorm_min(), true},
                                           {kInfinity, false},
                                           {-kInfinity, false},
                                           {std::nanf("1"), false}};
  for (const auto& [value, finite] : kCases) {
    for (size_t at = 0; at < 3; ++at) {
      std::string bytes(12, '\0');
      std::memcpy(bytes.data() + 4 * at, &value, 4);
      EXPECT_EQ(ErrorOf({{"t", TensorOver(bytes, DType::kF32)}}).empty(), finite) << value;
    }
  }
}

TEST(ValueScan, EveryPositionOfEveryLengthIsSeen) {
  for (size_t count = 1; count <= 40; ++count) {
    for (size_t at = 0; at < count; ++at) {
      std::string bytes(2 * count, '\x3f');
      Set(&bytes, at, 0x7f80);
      EXPECT_THAT(ErrorOf({{"t", TensorOver(bytes, DType::kBF16)}}),
                  EndsWith("infinity at element " + std::to_string(at)));
    }
  }
}

TEST(ValueScan, TheFirstInMemoryOrderIsNamedWhateverTheThreads) {
  std::string bytes(size_t{24} << 20, '\0');  // several blocks
  std::string other = bytes;
  Set(&bytes, bytes.size() / 2 - 1, 0xffc0);
  Set(&bytes, 5'000'000, 0xff80);
  Set(&other, 0, 0x7fff);
  const TensorMap tensors = {{"x", TensorOver(bytes, DType::kBF16)}, {"y", TensorOver(other, DType::kBF16)}};
  const bool x_first = bytes.data() < other.data();
  for (int threads = 1; threads <= 4; ++threads) {
    EXPECT_THAT(ErrorOf(tensors, threads),
                HasSubstr(x_first ? "tensor x holds infinity at element 5000000" : "tensor y holds NaN at element 0"));
  }
}

TEST(ValueScan, IntegersAreNeverWrong) {
  const std::string bytes(64, '\xff');
  for (const DType dtype : {DType::kI8, DType::kU8, DType::kI32})
    EXPECT_EQ(ErrorOf({{"t", TensorOver(bytes, dtype)}}), "");
}

TEST(ValueScan, NothingToScanIsFine) {
  EXPECT_EQ(ErrorOf({}), "");
  EXPECT_EQ(ErrorOf({{"t", TensorOver("", DType::kF32)}}), "");
}

}  // namespace
}  // namespace voxrt::weights
