// WavParser on every header found in the wild: same samples as the plain file, or a one-line error.
#include "audio/wav_reader.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "audio/wav_for_test.h"

namespace voxrt::audio {
namespace {

using test::Append;
using test::AppendNumber;
using test::Bytes;
using test::Chunk;
using test::MakeWav;
using test::WavSpec;

struct Parsed {
  std::vector<float> samples;
  Status status;
  std::optional<WavFormat> format;
  std::optional<uint64_t> data_bytes;
  bool foreign_codec = false;
};

Parsed Parse(const Bytes& wav, size_t portion = 0) {
  WavParser parser("clip.wav");
  Parsed parsed;
  const size_t step = portion > 0 ? portion : std::max<size_t>(wav.size(), 1);
  for (size_t at = 0; at < wav.size() && parsed.status.ok(); at += step) {
    parsed.status = parser.Push(std::span(wav).subspan(at, std::min(step, wav.size() - at)), &parsed.samples);
  }
  if (parsed.status.ok()) parsed.status = parser.Finish();
  parsed.format = parser.format();
  parsed.data_bytes = parser.data_bytes();
  parsed.foreign_codec = parser.foreign_codec();
  return parsed;
}

const std::vector<int16_t>& Samples() {
  static const std::vector<int16_t> samples = test::Tone(1000);
  return samples;
}
std::vector<float> Want() { return test::ToFloat(Samples()); }

void ExpectSame(const WavSpec& spec, const Bytes& data, const std::string& what) {
  const Bytes wav = MakeWav(spec, data);
  for (size_t portion : {0, 1, 3, 7, 44, 999}) {
    const Parsed parsed = Parse(wav, portion);
    ASSERT_TRUE(parsed.status.ok()) << what << ": " << parsed.status.message();
    ASSERT_EQ(parsed.samples, Want()) << what << " in portions of " << portion;
  }
}

void ExpectSame(const WavSpec& spec, const std::string& what) { ExpectSame(spec, test::S16Bytes(Samples()), what); }

// Samples() in another format; `encode` appends one.
Bytes Encode(const std::function<void(Bytes*, int16_t)>& encode) {
  Bytes data;
  for (int16_t s : Samples()) encode(&data, s);
  return data;
}

TEST(WavParser, ReadsAllFormatSizes) {
  for (int size : {16, 18, 20, 40}) {
    WavSpec spec{.format_bytes = size};
    if (size == 40) spec.tag = 0xFFFE;
    ExpectSame(spec, "fmt of " + std::to_string(size));
  }
}

TEST(WavParser, UnfinishedSizesMeanUntilTheEnd) {
  for (int64_t data_size : {int64_t{0}, int64_t{0xFFFFFFFF}, int64_t{0x7FFFFFFF}, int64_t{0x80000000},
                            int64_t{0xFFFFFFFF - 36}, int64_t{0x7FFFF000}}) {
    for (int64_t riff_size : {int64_t{0}, int64_t{0xFFFFFFFF}, int64_t{36}, int64_t{0x7FFFFFFF}}) {
      ExpectSame({.riff_size = riff_size, .data_size = data_size}, "data size " + std::to_string(data_size));
    }
  }
}

TEST(WavParser, DataSizeMayBeSlightlyWrongOrBeyondTheEnd) {
  ExpectSame({.data_size = 2001}, "+1");
  ExpectSame({.data_size = 2002}, "+2");
  ExpectSame({.data_size = 1'000'000'000}, "huge");
  const Parsed shorter = Parse(MakeWav({.data_size = 1999}, test::S16Bytes(Samples())));
  ASSERT_TRUE(shorter.status.ok());
  EXPECT_EQ(shorter.samples.size(), Samples().size() - 1);
}

TEST(WavParser, ChunksBeforeAndAfterTheDataAreSkipped) {
  ExpectSame({.before = Chunk("JUNK", std::string(28, '\0')),
              .between = Chunk("LIST", "INFOISFT") + Chunk("fact", "1234"),
              .after = Chunk("LIST", "INFOIART")},
             "even chunks");
  ExpectSame({.before = Chunk("bext", std::string(603, 'x'))}, "odd chunk with pad");
  ExpectSame({.between = Chunk("cue ", std::string(5, '\1'))}, "odd cue with pad");
  ExpectSame({.between = Chunk("cue ", std::string(5, '\1'), false)}, "odd cue without pad");
  ExpectSame({.before = Chunk("JUNK", "abc", false), .between = Chunk("abcd", "x", true) + Chunk("LIST", "y", false)},
             "odd mixtures");
  ExpectSame({.between = Chunk("LIST", "")}, "empty chunk");
}

TEST(WavParser, Reads64BitSizes) {
  Bytes sizes;
  AppendNumber(&sizes, 0, 8);     // RIFF size, not used
  AppendNumber(&sizes, 2000, 8);  // data size
  AppendNumber(&sizes, 1000, 8);
  AppendNumber(&sizes, 0, 4);
  const std::string ds64(reinterpret_cast<const char*>(sizes.data()), sizes.size());
  for (std::string_view id : {"RF64", "BW64"}) {
    ExpectSame({.before = Chunk("ds64", ds64),
                .after = Chunk("LIST", "INFO"),
                .id = id,
                .riff_size = 0xFFFFFFFF,
                .data_size = 0xFFFFFFFF},
               std::string(id));
  }
  ExpectSame(
      {.before = Chunk("ds64", std::string(28, '\0')), .id = "RF64", .riff_size = 0xFFFFFFFF, .data_size = 0xFFFFFFFF},
      "unfinished ds64");
}

TEST(WavParser, ReadsEverySampleType) {
  ExpectSame({.bits = 24}, Encode([](Bytes* out, int16_t s) { AppendNumber(out, static_cast<uint32_t>(s) << 8, 3); }),
             "24 bit");
  ExpectSame({.bits = 32}, Encode([](Bytes* out, int16_t s) { AppendNumber(out, static_cast<uint32_t>(s) << 16, 4); }),
             "32 bit");
  const Bytes f32 = Encode(
      [](Bytes* out, int16_t s) { AppendNumber(out, std::bit_cast<uint32_t>(static_cast<float>(s) / 32768.0f), 4); });
  ExpectSame({.tag = 3, .bits = 32}, f32, "float32");
  ExpectSame({.tag = 3, .bits = 32, .format_bytes = 18}, f32, "float32, fmt of 18");
  ExpectSame({.tag = 0xFFFE, .bits = 32, .format_bytes = 40, .sub_tag = 3}, f32, "float32 by SubFormat");
  ExpectSame({.tag = 3, .bits = 64},
             Encode([](Bytes* out, int16_t s) { AppendNumber(out, std::bit_cast<uint64_t>(s / 32768.0), 8); }),
             "float64");
  ExpectSame({.tag = 0xFFFE, .bits = 24, .format_bytes = 40},
             Encode([](Bytes* out, int16_t s) { AppendNumber(out, static_cast<uint32_t>(s) << 8, 3); }),
             "24 bit by SubFormat");
}

TEST(WavParser, EightBitIsUnsignedWithoutOffset) {
  Bytes data;
  for (int v : {0, 64, 128, 192, 255}) AppendNumber(&data, static_cast<uint64_t>(v), 1);
  EXPECT_EQ(Parse(MakeWav({.bits = 8}, data)).samples, (std::vector<float>{-1.0f, -0.5f, 0.0f, 0.5f, 127.0f / 128.0f}));
}

TEST(WavParser, ReadsG711) {
  EXPECT_EQ(Parse(MakeWav({.tag = 7, .rate = 8000, .bits = 8}, test::FromText("\xFF\x80"))).samples,
            (std::vector<float>{0.0f, 32124.0f / 32768.0f}));
  EXPECT_EQ(Parse(MakeWav({.tag = 6, .rate = 8000, .bits = 8}, test::FromText("\xD5\xAA"))).samples,
            (std::vector<float>{8.0f / 32768.0f, 32256.0f / 32768.0f}));
}

TEST(WavParser, AveragesChannelsAndDropsAnIncompleteFrame) {
  Bytes data;
  for (int16_t s : Samples()) {
    AppendNumber(&data, static_cast<uint16_t>(s), 2);
    AppendNumber(&data, static_cast<uint16_t>(s), 2);
  }
  ExpectSame({.channels = 2}, data, "stereo");
  data.resize(data.size() + 3);
  ExpectSame({.channels = 2}, data, "stereo and three bytes");
}

TEST(WavParser, AWrongFrameSizeDoesNotChangeWholeBytes) {
  Bytes wav = MakeWav({}, test::S16Bytes(Samples()));
  wav[32] = std::byte{4};  // block align of a stereo file
  EXPECT_EQ(Parse(wav).samples, Want());
}

TEST(WavParser, TwentyFourBitsMayLieInFourBytes) {
  Bytes wav = MakeWav({.bits = 24},
                      Encode([](Bytes* out, int16_t s) { AppendNumber(out, static_cast<uint32_t>(s) << 16, 4); }));
  wav[32] = std::byte{4};
  EXPECT_EQ(Parse(wav).samples, Want());
}

TEST(WavParser, NoSamplesIsNoError) {
  const std::vector<WavSpec> specs = {{}, {.after = Chunk("LIST", "INFOINAM")}, {.data_size = 0xFFFFFFFF}};
  for (const WavSpec& spec : specs) {
    const Parsed parsed = Parse(MakeWav(spec, {}));
    EXPECT_TRUE(parsed.status.ok()) << parsed.status.message();
    EXPECT_TRUE(parsed.samples.empty());
  }
}

TEST(WavParser, ReportsWhatItFound) {
  const Bytes data(8);
  const auto fails = [](const Bytes& wav, const std::string& part) {
    const Parsed parsed = Parse(wav);
    test::ExpectOneLine(parsed.status, "clip.wav");
    EXPECT_EQ(parsed.status.code(), StatusCode::kInvalidAudio);
    EXPECT_NE(parsed.status.message().find(part), std::string::npos) << parsed.status.message();
  };
  fails(test::FromText("RIFX....WAVEfmt "), "RIFF");
  fails(MakeWav({.tag = 0x55}, data), "MP3");
  fails(MakeWav({.tag = 0xFFFE, .format_bytes = 40, .sub_tag = 0x55}, data), "0xfffe");
  fails(MakeWav({.tag = 0xFFFE, .format_bytes = 18}, data), "EXTENSIBLE");
  fails(MakeWav({.rate = 0}, data), "0 Hz");
  fails(MakeWav({.rate = 4'000'000'000}, data), "4000000000 Hz");
  fails(MakeWav({.channels = 0}, data), "channels is 0");
  fails(MakeWav({.channels = 1000}, data), "channels is 1000");
  fails(MakeWav({.tag = 3, .bits = 16}, data), "16 bits");
  fails(MakeWav({.bits = 64}, data), "64 bits");
  fails(MakeWav({.tag = 7, .bits = 16}, data), "16 bits");
  fails(MakeWav({.before = Chunk("data", "xxxx")}, data), "before the fmt");
  fails(MakeWav({.before = Chunk("fmt ", "xxxx")}, data), "4 bytes");
  fails(test::FromText("RIFF"), "inside its header");
  Bytes header = MakeWav({}, {});
  header.resize(header.size() - 8);
  fails(header, "expected a data chunk");
}

TEST(WavParser, OnlyACompressedCodecIsForeign) {
  EXPECT_TRUE(Parse(MakeWav({.tag = 0x55}, Bytes(8))).foreign_codec);
  EXPECT_TRUE(Parse(MakeWav({.tag = 2, .bits = 4}, Bytes(8))).foreign_codec);
  EXPECT_FALSE(Parse(MakeWav({.bits = 64}, Bytes(8))).foreign_codec);
  EXPECT_FALSE(Parse(MakeWav({.rate = 0}, Bytes(8))).foreign_codec);
}

TEST(WavParser, TellsWhereAndHowLongTheSamplesAre) {
  WavParser parser("clip.wav");
  std::vector<float> samples;
  ASSERT_TRUE(parser.Push(MakeWav({.after = "tail"}, test::S16Bytes(Samples())), &samples).ok());
  EXPECT_EQ(parser.data_offset(), 44u);
  EXPECT_EQ(parser.data_bytes(), 2000u);
  EXPECT_TRUE(parser.done());
  EXPECT_FALSE(Parse(MakeWav({.data_size = 0xFFFFFFFF}, test::S16Bytes(Samples()))).data_bytes.has_value());
}

TEST(WavParser, EveryTruncationEndsCleanly) {
  const Bytes wav =
      MakeWav({.tag = 0xFFFE, .format_bytes = 40, .before = Chunk("JUNK", "abc"), .between = Chunk("LIST", "x", false)},
              test::S16Bytes(Samples()));
  for (size_t size = 0; size < 200; ++size) {
    const Parsed parsed = Parse(Bytes(wav.begin(), wav.begin() + static_cast<std::ptrdiff_t>(size)));
    if (!parsed.status.ok()) test::ExpectOneLine(parsed.status, "clip.wav");
    EXPECT_LE(parsed.samples.size(), size / 2);
  }
}

}  // namespace
}  // namespace voxrt::audio
