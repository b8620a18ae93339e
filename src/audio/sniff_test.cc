// What is refused by its first bytes, and what must not be.
#include "audio/sniff.h"

#include <gtest/gtest.h>

#include <random>

#include "audio/wav_for_test.h"

namespace voxrt::audio {
namespace {

using test::Append;
using test::AppendNumber;
using test::Bytes;

std::string Found(std::string_view text, bool whole = true) {
  return SniffNotAudio(test::FromText(text), whole).value_or("");
}

TEST(SniffNotAudio, NamesWhatIsNoAudio) {
  EXPECT_NE(Found("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n").find("LFS"),
            std::string::npos);
  EXPECT_NE(Found("<!DOCTYPE html><html>").find("web page"), std::string::npos);
  EXPECT_NE(Found("\n  <HTML><head>").find("web page"), std::string::npos);
  EXPECT_NE(Found("<?xml version=\"1.0\"?><MPD/>").find("web page"), std::string::npos);
  EXPECT_NE(Found("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n").find("playlist"), std::string::npos);
  EXPECT_NE(Found("ffconcat version 1.0\nfile '/etc/passwd'\n").find("playlist"), std::string::npos);
  EXPECT_EQ(Found("just some words"), "text");
  EXPECT_EQ(Found("{\"error\": \"not found\"}"), "text");
  EXPECT_EQ(Found("\xEF\xBB\xBFWort mit \xC3\xA4\xC3\xB6\xC3\xBC"), "text");
}

TEST(SniffNotAudio, WaitsForEnoughBytesUnlessNothingFollows) {
  EXPECT_EQ(Found("short", false), "");
  EXPECT_EQ(Found("short", true), "text");
  EXPECT_EQ(Found(std::string(64, 'a'), false), "text");
}

TEST(SniffNotAudio, LeavesBinaryAndTextualAudioAlone) {
  EXPECT_EQ(Found("NIST_1A\n   1024\n" + std::string(500, ' ')), "");
  EXPECT_EQ(Found("#!AMR\n"), "");
  EXPECT_EQ(Found(std::string("OggS\0\2", 6) + std::string(100, 'a')), "");
  EXPECT_EQ(Found(std::string(100, '\xC3')), "");
  std::mt19937 random(1);
  std::string noise;
  for (int i = 0; i < 512; ++i) noise.push_back(static_cast<char>(random()));
  EXPECT_EQ(Found(noise), "");
}

void AppendBox(Bytes* out, std::string_view name, size_t body, bool long_size = false) {
  const size_t size = body + (long_size ? 16 : 8);
  for (int i = 3; i >= 0; --i) AppendNumber(out, (long_size ? 1 : size) >> (8 * i), 1);
  Append(out, name);
  for (int i = 7; long_size && i >= 0; --i) AppendNumber(out, size >> (8 * i), 1);
  out->resize(out->size() + body);
}

bool Streamable(const Bytes& bytes, size_t portion) {
  Mp4BoxOrder order;
  bool streamable = true;
  for (size_t at = 0; at < bytes.size(); at += portion) {
    streamable = order.Push(std::span(bytes).subspan(at, std::min(portion, bytes.size() - at)));
  }
  return streamable;
}

TEST(Mp4BoxOrder, TellsATrailingIndex) {
  for (bool long_size : {false, true}) {
    Bytes trailing, leading;
    AppendBox(&trailing, "ftyp", 20);
    AppendBox(&trailing, "free", 0);
    AppendBox(&trailing, "mdat", 5000, long_size);
    AppendBox(&trailing, "moov", 100);
    AppendBox(&leading, "ftyp", 20);
    AppendBox(&leading, "moov", 100, long_size);
    AppendBox(&leading, "mdat", 5000);
    for (size_t portion : {1, 7, 32, 100000}) {
      EXPECT_FALSE(Streamable(trailing, portion));
      EXPECT_TRUE(Streamable(leading, portion));
    }
  }
}

TEST(Mp4BoxOrder, OtherFormatsAndDamagedBoxesAreNoTrailingIndex) {
  EXPECT_TRUE(Streamable(test::FromText("OggS....mdat....mdat"), 1));
  EXPECT_TRUE(Streamable(test::FromText(std::string("\0\0\0\3ftyp....mdat....mdat", 24)), 1));
  EXPECT_TRUE(Streamable(test::FromText(std::string("\0\0\0\1ftyp\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFmdatmdat", 24)), 3));
}

}  // namespace
}  // namespace voxrt::audio
