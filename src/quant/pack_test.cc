#include "quant/pack.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "quant/format.h"
#include "support/root.h"

namespace voxrt::quant {
namespace {

TEST(PackTest, TileWordsOfTheDocumentedExample) {
  constexpr int64_t kCols = 128;
  std::vector<uint8_t> codes(8 * kCols);
  for (int64_t n = 0; n < 8; ++n) {
    for (int64_t k = 0; k < kCols; ++k) codes[static_cast<size_t>(n * kCols + k)] = static_cast<uint8_t>((n + k) % 16);
  }
  std::vector<uint32_t> words(kCols);
  PackTileRows(codes.data(), kCols, words.data());
  const auto word = [&](int lane, int j) { return words[static_cast<size_t>(lane) * 4 + static_cast<size_t>(j)]; };
  EXPECT_EQ(word(0, 0), 0x91918080u);
  EXPECT_EQ(word(1, 0), 0xb3b3a2a2u);
  EXPECT_EQ(word(4, 0), 0xa2a29191u);
  EXPECT_EQ(word(5, 2), 0xc4c4b3b3u);
  EXPECT_EQ(word(31, 3), 0x6e6e5d5du);
}

TEST(PackTest, TilesAndTablesEqualTheReferenceProgram) {
  std::ifstream file(test::Root() + "/tests/golden/quant/vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  for (const auto& test : vectors.at("cases")) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    const auto codes = test.at("engine").at("codes").get<std::vector<uint8_t>>();
    const auto want = test.at("words").get<std::vector<uint32_t>>();
    std::vector<uint32_t> words(want.size());
    PackTileRows(codes.data(), 128, words.data());
    EXPECT_EQ(words, want);
    std::vector<uint8_t> back(codes.size());
    UnpackTileRows(words.data(), 128, back.data());
    EXPECT_EQ(back, codes);

    const auto scale = test.at("engine").at("scale").get<std::vector<uint16_t>>();
    const auto zero = test.at("engine").at("zero").get<std::vector<uint16_t>>();
    const auto want_table = test.at("scale_zero").get<std::vector<uint16_t>>();
    const int64_t groups = 128 / test.at("group").get<int64_t>();
    std::vector<uint16_t> table(want_table.size());
    for (int64_t row = 0; row < 8; ++row) {
      PackScaleZeroRow(scale.data() + row * groups, zero.data() + row * groups, row, 8, groups, table.data());
    }
    EXPECT_EQ(table, want_table);
    std::vector<uint16_t> scale_back(static_cast<size_t>(groups));
    std::vector<uint16_t> zero_back(static_cast<size_t>(groups));
    UnpackScaleZeroRow(table.data(), 5, 8, groups, scale_back.data(), zero_back.data());
    EXPECT_TRUE(std::equal(scale_back.begin(), scale_back.end(), scale.begin() + 5 * groups));
    EXPECT_TRUE(std::equal(zero_back.begin(), zero_back.end(), zero.begin() + 5 * groups));
  }
}

TEST(PackTest, CanonicalRowPutsColumnJLowAndColumnJPlus16High) {
  std::vector<int8_t> codes(64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i * 7 % 16 - 8);
  std::vector<uint8_t> bytes(32);
  PackInt4Row(codes.data(), 64, bytes.data());
  EXPECT_EQ(bytes[0], (codes[0] + 8) | (codes[16] + 8) << 4);
  EXPECT_EQ(bytes[15], (codes[15] + 8) | (codes[31] + 8) << 4);
  EXPECT_EQ(bytes[16], (codes[32] + 8) | (codes[48] + 8) << 4);
  std::vector<int8_t> back(64);
  UnpackInt4Row(bytes.data(), 64, back.data());
  EXPECT_EQ(back, codes);
}

}  // namespace
}  // namespace voxrt::quant
