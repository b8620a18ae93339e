#include "server/protocol/audio_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace voxrt::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void Put(std::string* out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i));
}

std::string WavHeader(int tag, int channels, int rate, int bits, const std::string& extra = "") {
  std::string wav = "RIFF";
  Put(&wav, 0xFFFFFFFF, 4);
  wav += "WAVEfmt ";
  Put(&wav, 16, 4);
  Put(&wav, static_cast<uint32_t>(tag), 2);
  Put(&wav, static_cast<uint32_t>(channels), 2);
  Put(&wav, static_cast<uint32_t>(rate), 4);
  Put(&wav, static_cast<uint32_t>(rate * channels * bits / 8), 4);
  Put(&wav, static_cast<uint32_t>(channels * bits / 8), 2);
  Put(&wav, static_cast<uint32_t>(bits), 2);
  wav += extra;
  wav += "data";
  Put(&wav, 0, 4);
  return wav;
}

std::vector<float> Decode(Encoding encoding, std::string_view bytes, size_t step = 1000) {
  PcmDecoder decoder(encoding);
  std::vector<float> samples;
  for (size_t i = 0; i < bytes.size(); i += step) decoder.Push(bytes.substr(i, step), &samples);
  return samples;
}

TEST(PcmDecoder, S16IsLittleEndian) {
  EXPECT_THAT(Decode(Encoding::kPcmS16, std::string("\x00\x40\x00\xC0\x01\x00", 6)),
              ElementsAre(0.5f, -0.5f, 1.0f / 32768));
}

TEST(PcmDecoder, EveryChunkingGivesTheSameSamples) {
  std::string bytes;
  for (int i = 0; i < 1201; ++i) bytes += static_cast<char>(i * 91 + i / 7);
  for (const Encoding encoding :
       {Encoding::kPcmS16, Encoding::kPcmS32, Encoding::kPcmF16, Encoding::kMulaw, Encoding::kAlaw}) {
    const std::vector<float> whole = Decode(encoding, bytes, 100000);
    EXPECT_EQ(whole.size(), 1201 / BytesPerSample(encoding));
    for (const size_t step : {1, 2, 3, 5, 7, 999}) EXPECT_EQ(Decode(encoding, bytes, step), whole) << step;
  }
}

TEST(PcmDecoder, FloatsAndHalves) {
  EXPECT_THAT(Decode(Encoding::kPcmF32, std::string("\x00\x00\x80\x3E", 4)), ElementsAre(0.25f));
  EXPECT_THAT(Decode(Encoding::kPcmF16, std::string("\x00\x38\x00\xB8\x00\x00\x00\x7C\x01\x00", 10)),
              ElementsAre(0.5f, -0.5f, 0.0f, 0.0f, std::ldexp(1.0f, -24)));
}

TEST(PcmDecoder, G711KnownCodes) {
  EXPECT_THAT(Decode(Encoding::kMulaw, std::string("\xFF\x7F\x00\x80", 4)),
              ElementsAre(0.0f, -0.0f, -32124.0f / 32768, 32124.0f / 32768));
  EXPECT_THAT(Decode(Encoding::kAlaw, std::string("\xD5\x55\x2A\xAA", 4)),
              ElementsAre(8.0f / 32768, -8.0f / 32768, -32256.0f / 32768, 32256.0f / 32768));
}

TEST(WavHeaderFilter, AMatchingHeaderIsRemovedWhateverTheChunking) {
  std::string list = "LIST";
  Put(&list, 3, 4);
  list += "abc";
  list += '\0';
  for (const std::string& extra : {std::string(), list}) {
    const std::string wav = WavHeader(1, 1, 16000, 16, extra) + "samples!";
    for (const size_t step : {1, 3, 12, 44, 1000}) {
      WavHeaderFilter filter;
      std::string out;
      for (size_t i = 0; i < wav.size(); i += step)
        ASSERT_TRUE(filter.Push(std::string_view(wav).substr(i, step), {}, &out).ok());
      filter.End(&out);
      EXPECT_EQ(out, "samples!") << step;
    }
  }
}

TEST(WavHeaderFilter, AnotherFormatIsSaidAndLaterBytesPass) {
  WavHeaderFilter filter;
  std::string out;
  const Status status = filter.Push(WavHeader(1, 2, 44100, 16) + "xx", {}, &out);
  EXPECT_EQ(status.code(), StatusCode::kInvalidAudio);
  EXPECT_THAT(status.message(), HasSubstr("2 channel(s), 44100 Hz"));
  ASSERT_TRUE(filter.Push("later", {}, &out).ok());
  EXPECT_EQ(out, "later");
}

TEST(WavHeaderFilter, AHeaderThatNeverEndsIsRefusedAndNotHeldForEver) {
  WavHeaderFilter filter;
  std::string out, junk = "RIFF....WAVE";
  for (int i = 0; i < 40; ++i) {
    junk += "JUNK";
    Put(&junk, 4000, 4);
    junk += std::string(4000, 'j');
  }
  EXPECT_FALSE(filter.Push(junk, {}, &out).ok());
  EXPECT_EQ(out, "");
}

TEST(WavHeaderFilter, SamplesThatOnlyLookLikeAHeaderPass) {
  for (const std::string& start :
       {std::string("RIFX"), std::string("RIFF1234AVI "), std::string("R"), std::string("RIFF12")}) {
    WavHeaderFilter filter;
    std::string out;
    ASSERT_TRUE(filter.Push(start, {}, &out).ok());
    filter.End(&out);
    EXPECT_EQ(out, start);
  }
}

TEST(Encoding, NamesAreReadBack) {
  for (const Encoding encoding : {Encoding::kPcmS16, Encoding::kPcmS32, Encoding::kPcmF16, Encoding::kPcmF32,
                                  Encoding::kMulaw, Encoding::kAlaw}) {
    EXPECT_EQ(ParseEncoding(EncodingName(encoding)), encoding);
  }
  EXPECT_EQ(ParseEncoding("mp3"), std::nullopt);
}

}  // namespace
}  // namespace voxrt::server
