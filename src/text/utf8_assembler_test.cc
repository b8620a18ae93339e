#include "text/utf8_assembler.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace voxrt::text {
namespace {

const std::string kSample = "日本語 नमस्ते 👩‍👩‍👧";

// Code points of `text`; -1 when it is not valid UTF-8. Decodes by value, unlike the code under test.
int CountCodePoints(std::string_view text) {
  int count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    const unsigned lead = static_cast<unsigned char>(text[i]);
    const int length = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
    if (length == 0 || i + static_cast<size_t>(length) > text.size()) return -1;
    uint32_t value = length == 1 ? lead : lead & (0xffu >> (length + 1));
    for (int j = 1; j < length; ++j) {
      const unsigned next = static_cast<unsigned char>(text[i + static_cast<size_t>(j)]);
      if ((next & 0xc0u) != 0x80u) return -1;
      value = value << 6 | (next & 0x3fu);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < kLeast[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return -1;
    i += static_cast<size_t>(length);
  }
  return count;
}

std::string Assemble(const std::vector<std::string_view>& parts) {
  Utf8Assembler assembler;
  std::string whole;
  for (std::string_view part : parts) {
    const std::string piece = assembler.Push(part);
    EXPECT_GE(CountCodePoints(piece), 0) << "piece is not valid UTF-8";
    whole += piece;
  }
  const std::string rest = assembler.Finish();
  EXPECT_GE(CountCodePoints(rest), 0);
  return whole + rest;
}

TEST(Utf8Assembler, EverySplitInTwoAndThreeGivesTheWholeBack) {
  const std::string_view text = kSample;
  for (size_t a = 0; a <= text.size(); ++a) {
    EXPECT_EQ(Assemble({text.substr(0, a), text.substr(a)}), kSample);
    for (size_t b = a; b <= text.size(); ++b) {
      EXPECT_EQ(Assemble({text.substr(0, a), text.substr(a, b - a), text.substr(b)}), kSample);
    }
  }
}

TEST(Utf8Assembler, EveryPieceSizeAndRandomSplitsGiveTheWholeBack) {
  const std::string_view text = kSample;
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string_view> parts;
    for (size_t at = 0; at < text.size(); at += size) parts.push_back(text.substr(at, size));
    EXPECT_EQ(Assemble(parts), kSample);
  }
  std::minstd_rand random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string_view> parts;
    for (size_t at = 0; at < text.size();) {
      const size_t size = random() % 6;  // empty pieces too: tokens without text between the bytes of a character
      parts.push_back(text.substr(at, size));
      at += size;
    }
    EXPECT_EQ(Assemble(parts), kSample);
  }
}

TEST(Utf8Assembler, HoldsBackAtMostThreeBytes) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.Push("a\xF0\x9F\x91"), "a");
  EXPECT_EQ(assembler.Push(""), "");
  EXPECT_EQ(assembler.Push("\xA9z"), "👩z");
  EXPECT_EQ(assembler.Finish(), "");
}

TEST(Utf8Assembler, BytesThatCannotBecomeValidAreReplacedAtOnce) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.Push("\xFF"), "\uFFFD");
  EXPECT_EQ(assembler.Push("\x80y"), "\uFFFDy");
  EXPECT_EQ(assembler.Push("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(assembler.Push("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(assembler.Push("\xF5"), "\uFFFD");
  EXPECT_EQ(assembler.Push("\xE3\x81"
                           "A"),
            "\uFFFD"
            "A");  // one for a broken-off sequence
  EXPECT_EQ(assembler.Push("\xE3\x81"), "");
  EXPECT_EQ(assembler.Push("\xE3\x81\x82"), "\uFFFDあ");
}

TEST(Utf8Assembler, AnIncompleteRestBecomesOneReplacement) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.Push("\xF0\x9F\x91"), "");
  EXPECT_EQ(assembler.Finish(), "\uFFFD");
  EXPECT_EQ(assembler.Finish(), "");
  EXPECT_EQ(assembler.Push("\xA9"), "\uFFFD");  // nothing is left over
}

TEST(Utf8Assembler, AnyBytesInAnySplitGiveTheSameValidText) {
  std::minstd_rand random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t i = 0; i < 12; ++i) {
      constexpr unsigned char kHard[] = {0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc2, 0xe0, 0xe3, 0xed, 0xf0, 0xf4, 0xff};
      bytes.push_back(static_cast<char>(kHard[random() % sizeof(kHard)]));
    }
    const std::string whole = Assemble({bytes});
    for (size_t at = 0; at <= bytes.size(); ++at) {
      EXPECT_EQ(Assemble({std::string_view(bytes).substr(0, at), std::string_view(bytes).substr(at)}), whole);
    }
  }
}

}  // namespace
}  // namespace voxrt::text
