// PcmDecoder, G.711 and level: exact values per format, bytes cut anywhere, no NaN ever.
#include "audio/pcm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "audio/g711.h"
#include "audio/level.h"
#include "audio/wav_for_test.h"

namespace voxrt::audio {
namespace {

using test::Append;
using test::AppendNumber;
using test::Bytes;

std::vector<float> Decode(SampleFormat format, const Bytes& bytes, int channels = 1) {
  PcmDecoder decoder(format, channels);
  std::vector<float> mono;
  decoder.Push(bytes, &mono);
  return mono;
}

Bytes Numbers(const std::vector<uint64_t>& values, int count) {
  Bytes bytes;
  for (uint64_t value : values) AppendNumber(&bytes, value, count);
  return bytes;
}

TEST(PcmDecoder, ReadsEveryFormatExactly) {
  using Floats = std::vector<float>;
  EXPECT_EQ(Decode(SampleFormat::kU8, Numbers({0, 128, 255}, 1)), (Floats{-1.0f, 0.0f, 127.0f / 128.0f}));
  EXPECT_EQ(Decode(SampleFormat::kS16le, Numbers({0x8000, 0, 0x7FFF, 0xFFFF}, 2)),
            (Floats{-1.0f, 0.0f, 32767.0f / 32768.0f, -1.0f / 32768.0f}));
  EXPECT_EQ(Decode(SampleFormat::kS16be, Numbers({0x0080, 0xFF7F}, 2)), (Floats{-1.0f, 32767.0f / 32768.0f}));
  EXPECT_EQ(Decode(SampleFormat::kS24le, Numbers({0x800000, 0x000001, 0x7FFFFF}, 3)),
            (Floats{-1.0f, 1.0f / 8388608.0f, 8388607.0f / 8388608.0f}));
  EXPECT_EQ(Decode(SampleFormat::kS32le, Numbers({0x80000000, 0x40000000}, 4)), (Floats{-1.0f, 0.5f}));
  EXPECT_EQ(Decode(SampleFormat::kF16le, Numbers({0x3800, 0xBC00, 0x0001, 0x0000}, 2)),
            (Floats{0.5f, -1.0f, std::ldexp(1.0f, -24), 0.0f}));
  EXPECT_EQ(Decode(SampleFormat::kF32le, Numbers({std::bit_cast<uint32_t>(0.25f)}, 4)), Floats{0.25f});
  EXPECT_EQ(Decode(SampleFormat::kF64le, Numbers({std::bit_cast<uint64_t>(-0.25)}, 8)), Floats{-0.25f});
  EXPECT_EQ(Decode(SampleFormat::kMulaw, Numbers({0xFF, 0x00, 0x80}, 1)),
            (Floats{0.0f, -32124.0f / 32768.0f, 32124.0f / 32768.0f}));
  EXPECT_EQ(Decode(SampleFormat::kAlaw, Numbers({0xD5, 0x55, 0xAA, 0x2A}, 1)),
            (Floats{8.0f / 32768.0f, -8.0f / 32768.0f, 32256.0f / 32768.0f, -32256.0f / 32768.0f}));
}

TEST(PcmDecoder, NonFiniteBecomesZeroAndLoudIsClamped) {
  const auto f32 = [](float value) { return static_cast<uint64_t>(std::bit_cast<uint32_t>(value)); };
  const auto f64 = [](double value) { return std::bit_cast<uint64_t>(value); };
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Decode(SampleFormat::kF32le,
                   Numbers({f32(nan), f32(infinity), f32(-infinity), f32(7.0f), f32(-1.5f), f32(3e38f)}, 4)),
            (std::vector<float>{0.0f, 0.0f, 0.0f, 1.0f, -1.0f, 1.0f}));
  EXPECT_EQ(Decode(SampleFormat::kF64le, Numbers({f64(nan), f64(1e300), f64(-1e300), f64(infinity)}, 8)),
            (std::vector<float>{0.0f, 1.0f, -1.0f, 0.0f}));
  EXPECT_EQ(Decode(SampleFormat::kF16le, Numbers({0x7C00, 0xFC00, 0x7E00, 0x4200}, 2)),
            (std::vector<float>{0.0f, 0.0f, 0.0f, 1.0f}));
}

TEST(PcmDecoder, AveragesChannels) {
  EXPECT_EQ(Decode(SampleFormat::kS16le, Numbers({0x4000, 0xC000, 0x4000, 0x4000}, 2), 2),
            (std::vector<float>{0.0f, 0.5f}));
  EXPECT_EQ(Decode(SampleFormat::kU8, Numbers({255, 128, 128, 1}, 1), 4), (std::vector<float>{0.0f}));
}

TEST(PcmDecoder, BytesMayBeCutAnywhere) {
  const std::vector<int16_t> tone = test::Tone(999);
  const Bytes bytes = test::S16Bytes(tone);
  for (size_t portion : {1, 3, 5, 999}) {
    PcmDecoder decoder(SampleFormat::kS16le, 1);
    std::vector<float> mono;
    for (size_t at = 0; at < bytes.size(); at += portion) {
      decoder.Push(std::span(bytes).subspan(at, std::min(portion, bytes.size() - at)), &mono);
    }
    EXPECT_EQ(mono, test::ToFloat(tone)) << portion;
  }
  PcmDecoder decoder(SampleFormat::kS24le, 2);
  std::vector<float> mono;
  decoder.Push(std::span(bytes).first(11), &mono);
  EXPECT_EQ(mono.size(), 1u);
  EXPECT_EQ(decoder.pending_bytes(), 5u);
  decoder.Reset();
  EXPECT_EQ(decoder.pending_bytes(), 0u);
}

TEST(SampleFormat, NamesRoundTrip) {
  for (const char* name : {"u8", "s16le", "s16be", "s24le", "s32le", "f16le", "f32le", "f64le", "mulaw", "alaw"}) {
    const auto format = ParseSampleFormat(name);
    ASSERT_TRUE(format.has_value()) << name;
    EXPECT_STREQ(SampleFormatName(*format), name);
  }
  EXPECT_FALSE(ParseSampleFormat("s17le").has_value());
  EXPECT_FALSE(ParseSampleFormat("").has_value());
}

TEST(G711, FollowsTheTables) {
  // Decision values of ITU-T G.711 tables 1 and 2, scaled to 16 bits.
  EXPECT_EQ(DecodeMulaw(0x8F), 16764);
  EXPECT_EQ(DecodeMulaw(0x90), 15996);
  EXPECT_EQ(DecodeMulaw(0x7E), -8);
  EXPECT_EQ(DecodeAlaw(0x80), 5504);
  EXPECT_EQ(DecodeAlaw(0x00), -5504);
  for (int code = 0; code < 128; ++code) {
    EXPECT_EQ(DecodeMulaw(static_cast<uint8_t>(code)), -DecodeMulaw(static_cast<uint8_t>(code | 0x80)));
    EXPECT_EQ(DecodeAlaw(static_cast<uint8_t>(code)), -DecodeAlaw(static_cast<uint8_t>(code | 0x80)));
  }
}

TEST(Level, MeasuresPeakAndRms) {
  const Level level = MeasureLevel(test::ToFloat(test::Tone(1600, 400.0, 16000, 0.5)));
  EXPECT_NEAR(level.peak, 0.5f, 1e-3);
  EXPECT_NEAR(level.rms, 0.5f / std::sqrt(2.0f), 1e-3);
  EXPECT_NEAR(ToDbfs(level.rms), -9.03f, 0.01f);
  EXPECT_EQ(MeasureLevel({}).peak, 0.0f);
  EXPECT_EQ(MeasureLevel({}).rms, 0.0f);
  EXPECT_EQ(ToDbfs(0.0f), kSilenceDbfs);
  EXPECT_EQ(ToDbfs(1.0f), 0.0f);
}

TEST(Level, AMeterForgetsWhatWasTaken) {
  LevelMeter meter;
  meter.Add(std::vector<float>{0.5f, -0.5f});
  meter.Add(std::vector<float>{-1.0f, 0.0f, 0.0f, 0.0f});
  const Level level = meter.Take();
  EXPECT_EQ(level.peak, 1.0f);
  EXPECT_FLOAT_EQ(level.rms, 0.5f);
  EXPECT_EQ(meter.Take().peak, 0.0f);
}

TEST(Level, ATickIsVoicedAboveMinus50Dbfs) {
  const auto constant = [](float dbfs) { return std::vector<float>(1280, std::pow(10.0f, dbfs / 20.0f)); };
  EXPECT_TRUE(IsVoiced(constant(kVoicedDbfs + 0.1f)));
  EXPECT_FALSE(IsVoiced(constant(kVoicedDbfs - 0.1f)));
  EXPECT_FALSE(IsVoiced(std::vector<float>(1280, 0.0f)));
  EXPECT_FALSE(IsVoiced({}));
}

}  // namespace
}  // namespace voxrt::audio
