#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

namespace voxrt::quant {
namespace {

struct Source {
  std::vector<uint16_t> bits;
  HostLinear weight;
};

// 64 x 1280 normal weights with outliers, the test matrix of docs/model.md 12.5.
Source RandomSource(int64_t rows, int64_t cols) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  Source source;
  source.bits.resize(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < source.bits.size(); ++i) {
    source.bits[i] = F32ToBF16(normal(random) * (static_cast<int64_t>(i) % cols % 97 == 0 ? 6.0f : 1.0f));
  }
  source.weight = {Format{}, rows, cols, source.bits.data(), nullptr};
  return source;
}

const Format kAll[] = {
    {.kind = FormatKind::kInt4, .group = 32},     {.kind = FormatKind::kInt4, .group = 128},
    {.kind = FormatKind::kInt4Tile, .group = 32}, {.kind = FormatKind::kInt4Tile, .group = 256},
    {.kind = FormatKind::kInt8, .group = 0},      {.kind = FormatKind::kInt8, .group = 64},
};

TEST(EncodeTest, ReportedErrorIsTheErrorOfDequantizedRows) {
  const Source source = RandomSource(40, 512);
  base::ThreadPool pool(2);
  for (const Format& format : kAll) {
    SCOPED_TRACE(FormatName(format));
    auto encoded = EncodeLinear(source.weight, format, Search::kRefit, pool);
    ASSERT_TRUE(encoded.ok()) << encoded.status().message();
    EXPECT_EQ(static_cast<int64_t>(encoded->data.size()), DataBytes(format, 40, 512));
    EXPECT_EQ(static_cast<int64_t>(encoded->scale.size()), ScaleCount(format, 40, 512));
    double error = 0.0;
    double power = 0.0;
    double largest = 0.0;
    std::vector<float> row(512);
    for (int64_t r = 0; r < 40; ++r) {
      DequantizeRow(encoded->View(), r, row.data());
      for (int64_t c = 0; c < 512; ++c) {
        const double w = static_cast<double>(Dequantize(source.weight, r, c));
        const double d = w - static_cast<double>(row[static_cast<size_t>(c)]);
        error += d * d;
        power += w * w;
        largest = std::max(largest, std::fabs(d));
      }
    }
    EXPECT_NEAR(encoded->error.relative_rms, std::sqrt(error / power), 1e-6);
    EXPECT_NEAR(encoded->error.max_abs, largest, 1e-7);
  }
}

TEST(EncodeTest, ErrorsAreThoseOfTheDocument) {
  const Source source = RandomSource(64, 1280);
  base::ThreadPool pool(2);
  const std::tuple<Format, Search, double, double> cases[] = {
      {{.kind = FormatKind::kInt4, .group = 32}, Search::kReference, 0.126, 0.132},
      {{.kind = FormatKind::kInt4, .group = 32}, Search::kRefit, 0.117, 0.123},
      {{.kind = FormatKind::kInt4Tile, .group = 32}, Search::kMinMax, 0.090, 0.094},
      {{.kind = FormatKind::kInt4Tile, .group = 32}, Search::kReference, 0.085, 0.089},
      {{.kind = FormatKind::kInt4Tile, .group = 32}, Search::kRefit, 0.081, 0.084},
      {{.kind = FormatKind::kInt4Tile, .group = 128}, Search::kRefit, 0.139, 0.145},
      {{.kind = FormatKind::kInt8, .group = 0}, Search::kReference, 0.0220, 0.0240},
  };
  for (const auto& [format, search, low, high] : cases) {
    auto encoded = EncodeLinear(source.weight, format, search, pool);
    ASSERT_TRUE(encoded.ok());
    EXPECT_GT(encoded->error.relative_rms, low) << FormatName(format) << " " << SearchName(search);
    EXPECT_LT(encoded->error.relative_rms, high) << FormatName(format) << " " << SearchName(search);
  }
}

TEST(EncodeTest, ResultDoesNotDependOnThreads) {
  const Source source = RandomSource(72, 256);
  base::ThreadPool one(1);
  base::ThreadPool three(3);
  for (const Format& format : kAll) {
    auto a = EncodeLinear(source.weight, format, Search::kRefit, one);
    auto b = EncodeLinear(source.weight, format, Search::kRefit, three);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->data, b->data);
    EXPECT_EQ(a->scale, b->scale);
    EXPECT_EQ(a->error.relative_rms, b->error.relative_rms);
  }
}

TEST(EncodeTest, RowsFollowTheGivenOrder) {
  const Source source = RandomSource(16, 128);
  base::ThreadPool pool(1);
  const Format format{.kind = FormatKind::kInt8};
  auto straight = EncodeLinear(source.weight, format, Search::kRefit, pool);
  auto reversed = EncodeLinear(source.weight, format, Search::kRefit, pool, [](int64_t row) { return 15 - row; });
  ASSERT_TRUE(straight.ok() && reversed.ok());
  std::vector<float> a(128);
  std::vector<float> b(128);
  DequantizeRow(straight->View(), 2, a.data());
  DequantizeRow(reversed->View(), 13, b.data());
  EXPECT_EQ(a, b);
}

TEST(EncodeTest, OddColumnsWorkPerRow) {
  const Source source = RandomSource(5, 37);
  base::ThreadPool pool(1);
  auto encoded = EncodeLinear(source.weight, {.kind = FormatKind::kInt8}, Search::kRefit, pool);
  ASSERT_TRUE(encoded.ok());
  EXPECT_LT(encoded->error.relative_rms, 0.02);
}

TEST(EncodeTest, ValuesThatAreNotFiniteAreRefused) {
  for (const uint16_t bad : {F32ToBF16(std::numeric_limits<float>::infinity()), uint16_t{0x7fc0}}) {
    Source source = RandomSource(16, 128);
    source.bits[9 * 128 + 4] = bad;
    base::ThreadPool pool(2);
    auto encoded = EncodeLinear(source.weight, kAll[0], Search::kRefit, pool);
    ASSERT_FALSE(encoded.ok());
    EXPECT_EQ(encoded.status().code(), StatusCode::kInvalidModel);
    EXPECT_NE(encoded.status().message().find("row 9"), std::string::npos);
  }
}

TEST(EncodeTest, ShapesThatDoNotFitAreRefusedWithTheRule) {
  const auto message = [](const Format& format, int64_t rows, int64_t cols) {
    return CheckShape(format, rows, cols).message();
  };
  EXPECT_EQ(message({.kind = FormatKind::kInt4, .group = 32}, 7, 96), "");
  EXPECT_NE(message({.kind = FormatKind::kInt4, .group = 48}, 8, 96).find("group size 48"), std::string::npos);
  EXPECT_NE(message({.kind = FormatKind::kInt4, .group = 0}, 8, 96).find("8 bits"), std::string::npos);
  EXPECT_NE(message({.kind = FormatKind::kInt8, .group = 64}, 8, 96).find("not a multiple of group size 64"),
            std::string::npos);
  EXPECT_NE(message({.kind = FormatKind::kInt4Tile, .group = 32}, 8, 96).find("multiples of 128"), std::string::npos);
  EXPECT_NE(message({.kind = FormatKind::kInt4Tile, .group = 32}, 12, 128).find("multiples of 8"), std::string::npos);
}

}  // namespace
}  // namespace voxrt::quant
