// Subtitles keep their promises for any input: valid cues, strictly increasing, inside the audio, no character cut.
#include "text/subtitles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "text/code_points.h"

namespace voxrt::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Segment MakeSegment(std::string text, int64_t start_ms, int64_t end_ms, std::vector<Word> words = {}) {
  return {.text = std::move(text), .start_ms = start_ms, .end_ms = end_ms, .words = std::move(words)};
}

struct ParsedCue {
  int64_t start_ms, end_ms;
  std::string text;
};

std::vector<ParsedCue> ParseSrt(const std::string& srt) {
  static const std::regex kPattern(
      R"((\d+)\n(\d+):(\d\d):(\d\d),(\d\d\d) --> (\d+):(\d\d):(\d\d),(\d\d\d)\n((?:[^\n]+\n)+)\n)");
  std::vector<ParsedCue> cues;
  size_t covered = 0;
  for (std::sregex_iterator it(srt.begin(), srt.end(), kPattern), end; it != end; ++it) {
    const std::smatch& m = *it;
    const auto ms = [&m](size_t first) {
      return ((std::stoll(m[first]) * 60 + std::stoll(m[first + 1])) * 60 + std::stoll(m[first + 2])) * 1000 +
             std::stoll(m[first + 3]);
    };
    EXPECT_EQ(std::stoul(m[1]), cues.size() + 1);
    cues.push_back({ms(2), ms(6), m[10]});
    covered += m[0].length();
  }
  EXPECT_EQ(covered, srt.size()) << "not all of it is cues:\n" << srt;
  return cues;
}

void ExpectOrdered(const std::vector<ParsedCue>& cues, int64_t duration_ms) {
  int64_t last_end = 0;
  for (const ParsedCue& cue : cues) {
    EXPECT_GE(cue.start_ms, last_end);
    EXPECT_GT(cue.end_ms, cue.start_ms);
    last_end = cue.end_ms;
  }
  EXPECT_LE(last_end, duration_ms);
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = DecodeCodePoint(text);
    if (!point.valid) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

TEST(FormatTimestamp, RollsOverAtTheHourAndBeyondNinetyNineHours) {
  EXPECT_EQ(FormatTimestamp(3599999, SubtitleFormat::kSrt), "00:59:59,999");
  EXPECT_EQ(FormatTimestamp(3600000, SubtitleFormat::kSrt), "01:00:00,000");
  EXPECT_EQ(FormatTimestamp(3600000, SubtitleFormat::kVtt), "01:00:00.000");
  EXPECT_EQ(FormatTimestamp(360000000, SubtitleFormat::kSrt), "100:00:00,000");
  EXPECT_EQ(FormatTimestamp(-5, SubtitleFormat::kSrt), "00:00:00,000");
}

TEST(WrapText, BreaksAtSpacesAndFoldsThem) {
  EXPECT_THAT(WrapText("  one two\n three ", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("", 8), SizeIs(0));
  EXPECT_THAT(WrapText("   ", 8), SizeIs(0));
}

TEST(WrapText, CutsTooLongWordsBetweenCharacters) {
  EXPECT_THAT(WrapText("abcdefghij", 4), ElementsAre("abcd", "efgh", "ij"));
}

TEST(WrapText, BreaksScriptsWithoutSpacesByColumns) {
  const std::vector<std::string> lines =
      WrapText("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE\xE5\xAD\x97\xE5\xB9\x95", 4);
  EXPECT_THAT(lines, ElementsAre("\xE6\x97\xA5\xE6\x9C\xAC", "\xE8\xAA\x9E\xE3\x81\xAE", "\xE5\xAD\x97\xE5\xB9\x95"));
}

TEST(WrapText, KeepsJoinedEmojiFlagsAndVowelSignsWhole) {
  const std::string family = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
  const std::string flag = "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA";
  EXPECT_THAT(WrapText(family + flag + family, 2), ElementsAre(family, flag, family));
  const std::string namaste = "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87";
  for (const std::string& line : WrapText(namaste, 2)) {
    EXPECT_GT(Columns(line), 0) << "a sign stands alone";
  }
}

TEST(WrapText, EveryLineIsValidUtf8AndFitsForRandomText) {
  std::mt19937 random(7);  // NOLINT: fixed seed on purpose
  const std::vector<std::string> parts = {
      "a", " ", "word ", "\xC3\xA9", "\xE6\x97\xA5", "\xF0\x9F\x98\x80", "\xE0\xA4\x95\xE0\xA4\xBF", ". "};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += parts[random() % parts.size()];
    const int columns = 4 + static_cast<int>(random() % 40);
    std::string joined, expected;
    for (const std::string& line : WrapText(text, columns)) {
      EXPECT_LE(Columns(line), columns);
      EXPECT_TRUE(IsValidUtf8(line));
      joined += line;
    }
    std::erase(joined, ' ');
    expected = text;
    std::erase(expected, ' ');
    EXPECT_EQ(joined, expected);
  }
}

TEST(SubtitleWriter, WritesSrtCuesAsTheyBecomeFinal) {
  SubtitleWriter writer(SubtitleFormat::kSrt);
  EXPECT_EQ(writer.Header(), "");
  EXPECT_EQ(writer.Add(MakeSegment("Hello.", 0, 800)), "");
  EXPECT_EQ(writer.Add(MakeSegment("World.", 1000, 1600)), "1\n00:00:00,000 --> 00:00:00,800\nHello.\n\n");
  EXPECT_EQ(writer.Finish(2000), "2\n00:00:01,000 --> 00:00:01,600\nWorld.\n\n");
  EXPECT_EQ(writer.Finish(2000), "");
}

TEST(SubtitleWriter, WritesVttWithHeaderAndEscapes) {
  SubtitleWriter writer(SubtitleFormat::kVtt);
  EXPECT_EQ(writer.Header(), "WEBVTT\n\n");
  EXPECT_EQ(writer.Add(MakeSegment("a < b & c --> d", 0, 800)), "");
  EXPECT_EQ(writer.Finish(800), "00:00:00.000 --> 00:00:00.800\na &lt; b &amp; c \xE2\x86\x92 d\n\n");
}

TEST(SubtitleWriter, SplitsLongSegmentsAtWordTimes) {
  Segment segment = MakeSegment("", 0, 20000);
  for (int i = 0; i < 20; ++i) {
    segment.words.push_back({.text = "word" + std::to_string(10 + i), .start_ms = i * 1000, .end_ms = i * 1000 + 900});
    segment.text += (i == 0 ? "" : " ") + segment.words.back().text;
  }
  SubtitleWriter writer(SubtitleFormat::kSrt, {.line_columns = 20, .lines_per_cue = 2});
  std::string srt = writer.Add(segment);
  srt += writer.Finish(20000);
  const std::vector<ParsedCue> cues = ParseSrt(srt);
  ASSERT_THAT(cues, SizeIs(4));  // 3 words are 20 columns: 7 lines
  EXPECT_EQ(cues[0].text, "word10 word11 word12\nword13 word14 word15\n");
  EXPECT_EQ(cues[0].end_ms, 5900);
  ExpectOrdered(cues, 20000);
}

TEST(SubtitleWriter, OrdersTouchingEqualAndBackwardTimes) {
  SubtitleWriter writer(SubtitleFormat::kSrt);
  std::string srt;
  srt += writer.Add(MakeSegment("a", 100, 100));
  srt += writer.Add(MakeSegment("b", 100, 100));
  srt += writer.Add(MakeSegment("c", 50, 400));
  srt += writer.Add(MakeSegment("d", 400, 400));
  srt += writer.Finish(400);
  ExpectOrdered(ParseSrt(srt), 400);
  for (const char* text : {"a", "b", "c", "d"}) EXPECT_THAT(srt, HasSubstr(text));
}

TEST(SubtitleWriter, IsOrderedAndCompleteForRandomTimes) {
  std::mt19937 random(11);  // NOLINT: fixed seed on purpose
  for (int round = 0; round < 300; ++round) {
    SubtitleWriter writer(SubtitleFormat::kSrt, {.line_columns = 10, .lines_per_cue = 2});
    std::string srt;
    int64_t start = 0;
    const int count = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      const int64_t end = std::min<int64_t>(start + static_cast<int64_t>(random() % 3) * 80, 1000);
      srt += writer.Add(MakeSegment("segment number " + std::to_string(i), start, end));
      start = std::min<int64_t>(end + static_cast<int64_t>(random() % 2) * 80, 1000);
    }
    srt += writer.Finish(1000);
    ExpectOrdered(ParseSrt(srt), 1000);
    EXPECT_THAT(srt, HasSubstr(std::to_string(count - 1)));
  }
}

TEST(SubtitleWriter, TwoHoursStayOrderedAndCrossTheHours) {
  SubtitleWriter writer(SubtitleFormat::kSrt);
  std::string srt;
  for (int64_t s = 0; s < 7200; s += 4) srt += writer.Add(MakeSegment("line", s * 1000, s * 1000 + 3900));
  srt += writer.Finish(7200000);
  const std::vector<ParsedCue> cues = ParseSrt(srt);
  EXPECT_THAT(cues, SizeIs(1800));
  ExpectOrdered(cues, 7200000);
  EXPECT_THAT(srt, HasSubstr("01:00:00,000 -->"));
}

TEST(SubtitleWriter, EmptyTranscriptHasNoCue) {
  SubtitleWriter writer(SubtitleFormat::kSrt);
  EXPECT_EQ(writer.Add(MakeSegment("  ", 0, 100)), "");
  EXPECT_EQ(writer.Finish(100), "");
}

TEST(DecodeCodePoint, RefusesOverlongSurrogatesAndTruncation) {
  for (const char* bad :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF0\x9F\x98", "\x80", "\xFF"}) {
    EXPECT_FALSE(DecodeCodePoint(bad).valid);
    EXPECT_EQ(DecodeCodePoint(bad).bytes, 1U);
  }
  EXPECT_EQ(DecodeCodePoint("\xF0\x9F\x98\x80").value, 0x1f600U);
}

}  // namespace
}  // namespace voxrt::text
