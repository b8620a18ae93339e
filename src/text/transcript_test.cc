#include "text/transcript.h"

#include <gtest/gtest.h>

#include <random>

namespace voxrt::text {
namespace {

// Feeds tokens one frame each: "" = pad, "W" = marker, anything else = text.
class Feeder {
 public:
  Feeder& Tokens(std::initializer_list<const char*> tokens) {
    for (const char* token : tokens) {
      frame_ += 80;
      const bool mark = std::string_view(token) == "W";
      builder_.Add(mark ? "" : token, mark, frame_);
    }
    return *this;
  }
  Feeder& Pads(int count) {
    for (int i = 0; i < count; ++i) Tokens({""});
    return *this;
  }
  std::vector<Segment> Take() { return builder_.TakeSegments(); }
  std::vector<Segment> Finish(int64_t duration_ms = 1'000'000) {
    builder_.Finish(duration_ms);
    return builder_.TakeSegments();
  }
  int64_t frame() const { return frame_; }
  TranscriptBuilder& builder() { return builder_; }

 private:
  TranscriptBuilder builder_;
  int64_t frame_ = 0;
};

std::vector<std::string> Words(const std::vector<Segment>& segments) {
  std::vector<std::string> words;
  for (const Segment& segment : segments) {
    for (const Word& word : segment.words) words.push_back(word.text);
  }
  return words;
}

std::vector<std::string> Texts(const std::vector<Segment>& segments) {
  std::vector<std::string> texts;
  for (const Segment& segment : segments) texts.push_back(segment.text);
  return texts;
}

// Strictly ordered, inside the duration, segments made of their words.
void ExpectOrdered(const std::vector<Segment>& segments, int64_t duration_ms) {
  int64_t last = 0;
  for (const Segment& segment : segments) {
    ASSERT_FALSE(segment.words.empty());
    EXPECT_EQ(segment.start_ms, segment.words.front().start_ms);
    EXPECT_EQ(segment.end_ms, segment.words.back().end_ms);
    size_t at = 0;
    for (const Word& word : segment.words) {
      EXPECT_GE(word.start_ms, last);
      EXPECT_LT(word.start_ms, word.end_ms);
      last = word.end_ms;
      at = segment.text.find(word.text, at);
      ASSERT_NE(at, std::string::npos) << word.text << " in " << segment.text;
      at += word.text.size();
    }
  }
  EXPECT_LE(last, duration_ms);
}

using Strings = std::vector<std::string>;

TEST(Transcript, AWordEndsAtTheFrameOfItsMarker) {
  Feeder feeder;
  feeder.Pads(10).Tokens({"W", " hel", "lo", "", "", "", "W", "", " world"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Words(segments), (Strings{"hello", "world"}));
  EXPECT_EQ(segments[0].words[0].end_ms, 11 * 80);
  EXPECT_EQ(segments[0].words[1].end_ms, 17 * 80);
  EXPECT_EQ(Texts(segments), Strings{"hello world"});
  ExpectOrdered(segments, 2000);
}

TEST(Transcript, StartsAreEstimatesNotBeforeThePreviousEnd) {
  Feeder feeder;
  feeder.Pads(50).Tokens({"W", " hello", "W", " extraordinarily"});
  const std::vector<Word> words = feeder.Finish()[0].words;
  EXPECT_EQ(words[0].end_ms, 51 * 80);
  EXPECT_GT(words[0].start_ms, 45 * 80);  // five letters take less than half a second
  EXPECT_EQ(words[1].start_ms, words[0].end_ms);
}

TEST(Transcript, WordsThatShareAMarkerEndWithItInOrder) {
  Feeder feeder;
  feeder.Pads(20).Tokens({"W", " of", " the", "W", " house"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Words(segments), (Strings{"of", "the", "house"}));
  EXPECT_EQ(segments[0].words[1].end_ms, 21 * 80);
  EXPECT_LT(segments[0].words[0].end_ms, 21 * 80);
  EXPECT_GT(segments[0].words[0].start_ms, 14 * 80);
  EXPECT_EQ(segments[0].words[2].end_ms, 24 * 80);
  ExpectOrdered(segments, 10000);
}

TEST(Transcript, AWordWithoutItsOwnMarkerStartsAtASpaceAndEndsWithItsText) {
  Feeder feeder;
  feeder.Tokens({"", "", "", "", " one", "", "", " tw", "o", "", " three"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Words(segments), (Strings{"one", "two", "three"}));
  EXPECT_EQ(segments[0].words[0].end_ms, 5 * 80);
  EXPECT_EQ(segments[0].words[1].end_ms, 9 * 80);
  EXPECT_EQ(segments[0].words[2].end_ms, 11 * 80);
}

TEST(Transcript, AWordAfterBlanksIsNotOfTheEarlierMarker) {
  Feeder feeder;
  feeder.Pads(10).Tokens({"W", " of", "", "", "", "", " course"});
  const std::vector<Word> words = feeder.Finish()[0].words;
  EXPECT_EQ(words[0].end_ms, 11 * 80);
  EXPECT_EQ(words[1].end_ms, 17 * 80);
}

TEST(Transcript, AMarkerInsideAWordMovesItsEnd) {
  Feeder feeder;
  feeder.Pads(10).Tokens({"W", " under", "W", "stand", "W", " me"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Words(segments), (Strings{"understand", "me"}));
  EXPECT_EQ(segments[0].words[0].end_ms, 13 * 80);
}

TEST(Transcript, SentencesEndAtTheirPunctuation) {
  Feeder feeder;
  feeder.Pads(10).Tokens(
      {"W", " It", "W", " is", "W", " 3.14", ".", "W", " Really", "?", "\"", "W", " Yes", "!", "W", " Mr"});
  EXPECT_EQ(Texts(feeder.Finish()), (Strings{"It is 3.14.", "Really?\"", "Yes!", "Mr"}));
}

TEST(Transcript, SentencesOfScriptsWithoutSpacesEndAtTheirStops) {
  Feeder feeder;
  feeder.Pads(10).Tokens(
      {"W", "今日は", "W", "晴れ", "。", "明日", "は", "W", "雨", "？「", "はい", "！」", "そう", "です"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Texts(segments), (Strings{"今日は晴れ。", "明日は雨？", "「はい！」", "そうです"}));
  EXPECT_EQ(Words(segments), (Strings{"今日は", "晴れ。", "明日は", "雨？", "「はい！」", "そうです"}));
  EXPECT_EQ(segments[0].words[0].end_ms, 11 * 80);
  ExpectOrdered(segments, 10000);
}

TEST(Transcript, HindiAndKoreanUseSpacesAndTheirOwnStops) {
  Feeder feeder;
  feeder.Tokens({"W", " यह", "W", " घर", " है", "।", "W", " 안녕", "하세요", ".", "W", " 네"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Texts(segments), (Strings{"यह घर है।", "안녕하세요.", "네"}));
  EXPECT_EQ(Words(segments), (Strings{"यह", "घर", "है।", "안녕하세요.", "네"}));
}

TEST(Transcript, APauseEndsASegmentWhileItLasts) {
  Feeder feeder;
  feeder.Tokens({"W", " one"}).Pads(9);
  EXPECT_TRUE(feeder.Take().empty());
  feeder.Pads(1);
  EXPECT_EQ(Texts(feeder.Take()), Strings{"one"});
  feeder.Tokens({"W", " two"});
  EXPECT_EQ(Texts(feeder.Finish()), Strings{"two"});
}

TEST(Transcript, ASegmentLastsAtMostThirtySeconds) {
  Feeder feeder;
  for (int i = 0; i < 200; ++i) feeder.Tokens({"W", " word", "", "", ""});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(segments.size(), 3u);
  for (const Segment& segment : segments) EXPECT_LE(segment.end_ms - segment.start_ms, 30'000);
  EXPECT_EQ(Words(segments).size(), 200u);
  ExpectOrdered(segments, feeder.frame());
}

TEST(Transcript, EndlessTextWithoutSpacesIsCut) {
  Feeder feeder;
  for (int i = 0; i < 45'000; ++i) feeder.Tokens({"日本"});  // an hour
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_GT(segments.size(), 100u);
  ExpectOrdered(segments, feeder.frame());
}

TEST(Transcript, LatePunctuationBelongsToTheWordBefore) {
  Feeder feeder;
  feeder.Tokens({"W", " well", "", "", " -", "W", " yes", "", "", "W", ".", "W", " no"}).Pads(12).Tokens({"?"});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Texts(segments), (Strings{"well - yes.", "no?"}));
  EXPECT_EQ(Words(segments), (Strings{"well -", "yes.", "no?"}));
}

TEST(Transcript, PiecesWithSeveralWordsAndAnySpaceAreSplit) {
  Feeder feeder;
  feeder.Tokens({"W", " a b\n", "c", "\td  e "});
  const std::vector<Segment> segments = feeder.Finish();
  EXPECT_EQ(Words(segments), (Strings{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(feeder.builder().text(), " a b\nc\td  e ");
}

TEST(Transcript, OnlyBlanksOrPunctuationGiveNoSegments) {
  Feeder feeder;
  feeder.Tokens({"W", "", " ", ".", "W"}).Pads(20);
  EXPECT_TRUE(feeder.Finish().empty());
  EXPECT_EQ(feeder.builder().text(), " .");
}

TEST(Transcript, TimesNeverPassTheDuration) {
  for (const int64_t duration : {int64_t{0}, int64_t{1}, int64_t{500}, int64_t{1000}}) {
    Feeder feeder;
    feeder.Pads(8).Tokens({"W", " one", "W", " two", "W", " three", " four"});
    const std::vector<Segment> segments = feeder.Finish(duration);
    EXPECT_EQ(Words(segments).size(), 4u);
    if (duration >= 500) {
      ExpectOrdered(segments, duration);
    } else {
      EXPECT_LE(segments.back().end_ms, duration);
      EXPECT_GE(segments.front().start_ms, 0);
    }
  }
}

TEST(Transcript, AnyTokensGiveOrderedTimesAndTheExactText) {
  const char* kTokens[] = {"",     "",  "",  "W",  " a", "b",  " cd", ".",  "。",
                           "日本", "?", " ", "\n", "、", "」", "ก",   " -", "  x  y"};
  std::minstd_rand random(3);
  for (int round = 0; round < 300; ++round) {
    Feeder feeder;
    std::string expected;
    std::vector<Segment> all;
    for (int i = 0; i < 120; ++i) {
      const char* token = kTokens[random() % std::size(kTokens)];
      if (std::string_view(token) != "W") expected += token;
      feeder.Tokens({token});
      if (i % 10 == 0) {
        for (Segment& segment : feeder.Take()) all.push_back(std::move(segment));
      }
    }
    for (Segment& segment : feeder.Finish(feeder.frame() + 200)) all.push_back(std::move(segment));
    ExpectOrdered(all, feeder.frame() + 200);
    EXPECT_EQ(feeder.builder().text(), expected);
  }
}

TEST(Transcript, TrimRemovesAsciiSpaceAtBothEnds) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim(""), "");
  EXPECT_EQ(Trim("  "), "");
  EXPECT_EQ(Trim("\u3000x"), "\u3000x");
}

}  // namespace
}  // namespace voxrt::text
