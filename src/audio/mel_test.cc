// MelStream against golden rows, and its streaming promises: any chunking, both mirrored ends, silence, Reset, no
// allocation.
#include "audio/mel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "support/root.h"

namespace voxrt::audio {
namespace {

constexpr int64_t kHop = 160;
constexpr int64_t kBins = 128;

// The golden file: only what this test needs of the safetensors format.
class Golden {
 public:
  Golden() {
    std::ifstream file(voxrt::test::Root() + "/tests/golden/tiny_golden.safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    if (bytes_.size() < 8) return;
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), 8);
    header_ = nlohmann::json::parse(bytes_.begin() + 8, bytes_.begin() + 8 + static_cast<int64_t>(header_bytes));
    data_ = 8 + header_bytes;
  }

  template <typename T>
  std::vector<T> Tensor(const std::string& name) const {
    const auto& entry = header_.at(name);
    const size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + data_ + begin, end - begin);
    return values;
  }

 private:
  std::vector<char> bytes_;
  nlohmann::json header_;
  size_t data_ = 0;
};

// Left, align and right zeros of docs/model.md 3.
std::vector<float> Pad(const std::vector<int16_t>& pcm, size_t delay_tokens) {
  constexpr size_t kTick = 1280;
  std::vector<float> padded(kTick * 32, 0.0f);
  for (int16_t s : pcm) padded.push_back(static_cast<float>(s) / 32768.0f);
  padded.resize((padded.size() + kTick - 1) / kTick * kTick + kTick * (delay_tokens + 11), 0.0f);
  return padded;
}

std::vector<float> Noise(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> samples(count);
  for (float& s : samples) s = uniform(random);
  return samples;
}

std::vector<float> Whole(std::span<const float> samples) {
  MelStream mel{MelOptions{}};
  std::vector<float> rows;
  mel.Push(samples, &rows);
  mel.Finish(&rows);
  return rows;
}

// Offline log-mel straight from the definition, in double and without an FFT.
std::vector<double> Defined(const std::vector<float>& x, int64_t row) {
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<double> frame(400);
  for (int64_t i = 0; i < 400; ++i) {
    int64_t at = kHop * row - 200 + i;
    while (at < 0 || at >= n) at = at < 0 ? -at : 2 * (n - 1) - at;
    frame[i] = x[at] * (0.5 - 0.5 * std::cos(2 * M_PI * static_cast<double>(i) / 400));
  }
  const std::vector<float> bank = MelFilterBank(MelOptions{});
  std::vector<double> mel(kBins);
  for (int k = 0; k <= 200; ++k) {
    double re = 0, im = 0;
    for (int i = 0; i < 400; ++i) {
      re += frame[i] * std::cos(2 * M_PI * k * i / 400);
      im += frame[i] * std::sin(2 * M_PI * k * i / 400);
    }
    for (int64_t b = 0; b < kBins; ++b) mel[b] += (re * re + im * im) * bank[k * kBins + b];
  }
  for (double& m : mel) m = (std::max(std::log10(std::max(m, 1e-10)), -6.5) + 4) / 4;
  return mel;
}

TEST(MelFilterBank, EqualsTheReferenceFilterBank) {
  const std::vector<float> want = Golden().Tensor<float>("mel_filters");
  const std::vector<float> got = MelFilterBank(MelOptions{});
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-8) << i;
}

TEST(MelStream, EqualsEveryGoldenCase) {
  const Golden golden;
  const std::pair<const char*, size_t> cases[] = {{"short", 6}, {"delay2", 2}, {"delay30", 30}, {"one_sample", 6}};
  for (const auto& [name, delay] : cases) {
    const std::vector<float> rows = Whole(Pad(golden.Tensor<int16_t>(std::string(name) + ".pcm_s16"), delay));
    const std::vector<float> want = golden.Tensor<float>(std::string(name) + ".mel");  // [bins, frames]
    ASSERT_EQ(rows.size(), want.size()) << name;
    const size_t frames = rows.size() / kBins;
    float worst = 0.0f;
    for (size_t f = 0; f < frames; ++f) {
      for (size_t b = 0; b < kBins; ++b) worst = std::max(worst, std::fabs(rows[f * kBins + b] - want[b * frames + f]));
    }
    EXPECT_LT(worst, 1e-4f) << name;
    RecordProperty(std::string(name) + "_max_error", std::to_string(worst));
  }
}

TEST(MelStream, AnyChunkingGivesTheSameBits) {
  const std::vector<float> samples = Noise(16000 + 77, 1);
  const std::vector<float> whole = Whole(samples);
  std::mt19937 random(2);
  for (size_t fixed : {1, 2, 3, 7, 159, 160, 161, 199, 200, 201, 400, 999, 1280, 4096, 5000, 0}) {
    MelStream mel{MelOptions{}};
    std::vector<float> rows;
    int64_t counted = 0;
    for (size_t at = 0; at < samples.size();) {
      const size_t size = std::min(samples.size() - at, fixed ? fixed : random() % 3000);
      counted += mel.Push(std::span(samples).subspan(at, size), &rows);
      at += size;
      // A row is handed out as soon as its last sample exists.
      const int64_t total = static_cast<int64_t>(at);
      ASSERT_EQ(mel.rows(), total < 200 ? 0 : (total - 200) / kHop + 1);
    }
    counted += mel.Finish(&rows);
    ASSERT_EQ(rows.size(), whole.size());
    ASSERT_EQ(std::memcmp(rows.data(), whole.data(), rows.size() * sizeof(float)), 0) << fixed;
    EXPECT_EQ(counted, static_cast<int64_t>(samples.size()) / kHop);
    EXPECT_EQ(mel.samples(), static_cast<int64_t>(samples.size()));
  }
}

TEST(MelStream, MirrorsBothEnds) {
  for (size_t n : {160, 320, 480, 1600}) {
    const std::vector<float> samples = Noise(n, 3);
    const std::vector<float> rows = Whole(samples);
    ASSERT_EQ(rows.size(), n / kHop * kBins);
    for (int64_t f = 0; f < static_cast<int64_t>(n) / kHop; ++f) {
      const std::vector<double> want = Defined(samples, f);
      for (int64_t b = 0; b < kBins; ++b)
        ASSERT_NEAR(rows[f * kBins + b], want[b], 1e-4) << n << " row " << f << " bin " << b;
    }
  }
}

TEST(MelStream, ShortSignalsGiveOneRowPerWholeHop) {
  for (size_t n : {0, 1, 41, 159, 160, 161, 199, 200, 201, 319, 320, 359, 360, 361, 1279, 1280, 1281}) {
    EXPECT_EQ(Whole(Noise(n, 4)).size(), n / kHop * kBins) << n;
  }
}

TEST(MelStream, ZerosBeforeAndAfterMakeMirroringInvisible) {
  std::vector<float> padded(1280, 0.0f);
  const std::vector<float> noise = Noise(3200, 5);
  padded.insert(padded.end(), noise.begin(), noise.end());
  padded.resize(padded.size() + 1280, 0.0f);
  const std::vector<float> finished = Whole(padded);
  MelStream mel{MelOptions{}};
  std::vector<float> rows;
  mel.Push(padded, &rows);
  mel.Push(std::vector<float>(40, 0.0f), &rows);
  EXPECT_EQ(rows, finished);
}

TEST(MelStream, SilenceIsExactlyTheFloor) {
  for (float row : Whole(std::vector<float>(16000, 0.0f))) ASSERT_EQ(row, -0.625f);
}

TEST(MelStream, ResetForgetsEverything) {
  const std::vector<float> samples = Noise(2000, 6);
  MelStream mel{MelOptions{}};
  std::vector<float> rows;
  mel.Push(Noise(777, 7), &rows);
  mel.Finish(&rows);
  mel.Reset();
  EXPECT_EQ(mel.samples(), 0);
  EXPECT_EQ(mel.rows(), 0);
  rows.clear();
  mel.Push(samples, &rows);
  mel.Finish(&rows);
  EXPECT_EQ(rows, Whole(samples));
}

TEST(MelStream, FinishTwiceAddsNothing) {
  MelStream mel{MelOptions{}};
  std::vector<float> rows;
  mel.Push(Noise(1600, 8), &rows);
  EXPECT_EQ(mel.Finish(&rows), 1);
  EXPECT_EQ(mel.Finish(&rows), 0);
}

TEST(MelStream, OtherSizesAreHonoured) {
  const MelOptions options{.sample_rate = 8000, .bins = 20, .hop_samples = 80, .window_samples = 160};
  MelStream mel{options};
  std::vector<float> rows;
  mel.Push(Noise(800, 9), &rows);
  mel.Finish(&rows);
  EXPECT_EQ(rows.size(), 10u * 20u);
  EXPECT_EQ(MelFilterBank(options).size(), 81u * 20u);
}

TEST(MelStream, AfterWarmUpATickKeepsItsCapacity) {
  // The caller's vector is the only thing that may grow: cleared and reused it keeps its storage.
  MelStream mel{MelOptions{}};
  std::vector<float> rows;
  const std::vector<float> tick = Noise(1280, 10);
  mel.Push(tick, &rows);
  rows.clear();
  mel.Push(tick, &rows);
  const float* storage = rows.data();
  const size_t capacity = rows.capacity();
  for (int i = 0; i < 100; ++i) {
    rows.clear();
    ASSERT_EQ(mel.Push(tick, &rows), 8);
    ASSERT_EQ(rows.data(), storage);
    ASSERT_EQ(rows.capacity(), capacity);
  }
}

}  // namespace
}  // namespace voxrt::audio
