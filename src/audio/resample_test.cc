// Resampler: chunked = whole bit for bit, right length and pitch, and a clear error where libsoxr is missing.
#include "audio/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "audio/wav_for_test.h"

namespace voxrt::audio {
namespace {

TEST(Resampler, EqualRatesPassThrough) {
  auto resampler = Resampler::Create(16000, 16000, "x");
  ASSERT_TRUE(resampler.ok());
  const std::vector<float> samples = test::ToFloat(test::Tone(777));
  std::vector<float> out;
  ASSERT_TRUE(resampler->Push(samples, &out).ok());
  ASSERT_TRUE(resampler->Finish(&out).ok());
  EXPECT_EQ(out, samples);
}

#ifdef VOXRT_HAVE_SOXR

std::vector<float> Whole(int from, const std::vector<float>& samples) {
  auto resampler = Resampler::Create(from, 16000, "x");
  EXPECT_TRUE(resampler.ok());
  std::vector<float> out;
  EXPECT_TRUE(resampler->Push(samples, &out).ok());
  EXPECT_TRUE(resampler->Finish(&out).ok());
  return out;
}

TEST(Resampler, AnyChunkingGivesTheSameBits) {
  std::mt19937 random(1);
  for (int rate : {8000, 11025, 22050, 24000, 44100, 48000, 96000}) {
    const std::vector<float> samples = test::ToFloat(test::Tone(20011, 300.0, rate));
    const std::vector<float> whole = Whole(rate, samples);
    for (size_t fixed : {1, 37, 1280, 0}) {
      auto resampler = Resampler::Create(rate, 16000, "x");
      ASSERT_TRUE(resampler.ok());
      std::vector<float> out;
      for (size_t at = 0; at < samples.size();) {
        const size_t count = std::min(samples.size() - at, fixed > 0 ? fixed : 1 + random() % 3000);
        ASSERT_TRUE(resampler->Push(std::span(samples).subspan(at, count), &out).ok());
        at += count;
      }
      ASSERT_TRUE(resampler->Finish(&out).ok());
      ASSERT_EQ(out, whole) << rate << " in " << fixed;
    }
  }
}

TEST(Resampler, KeepsLengthPitchAndPlace) {
  for (int rate : {8000, 11025, 22050, 44100, 48000, 96000}) {
    const std::vector<float> out = Whole(rate, test::ToFloat(test::Tone(static_cast<size_t>(rate), 300.0, rate)));
    EXPECT_NEAR(static_cast<double>(out.size()), 16000.0, 1.0) << rate;
    const std::vector<float> want = test::ToFloat(test::Tone(16000, 300.0, 16000));
    for (size_t i = 2000; i < 14000; ++i) ASSERT_NEAR(out[i], want[i], 2e-3) << rate << " at " << i;
  }
}

TEST(Resampler, AfterFinishANewStreamBegins) {
  const std::vector<float> samples = test::ToFloat(test::Tone(5000, 300.0, 48000));
  auto resampler = Resampler::Create(48000, 16000, "x");
  ASSERT_TRUE(resampler.ok());
  std::vector<float> first, second;
  ASSERT_TRUE(resampler->Push(samples, &first).ok());
  ASSERT_TRUE(resampler->Finish(&first).ok());
  ASSERT_TRUE(resampler->Push(samples, &second).ok());
  ASSERT_TRUE(resampler->Finish(&second).ok());
  EXPECT_EQ(first, second);
}

TEST(Resampler, EmptyStreamIsEmpty) { EXPECT_TRUE(Whole(44100, {}).empty()); }

#else

TEST(Resampler, WithoutLibsoxrTheErrorNamesTheRate) {
  const auto resampler = Resampler::Create(44100, 16000, "a.wav");
  ASSERT_FALSE(resampler.ok());
  test::ExpectOneLine(resampler.status(), "a.wav");
  EXPECT_NE(resampler.status().message().find("44100 Hz"), std::string::npos);
}

#endif

}  // namespace
}  // namespace voxrt::audio
