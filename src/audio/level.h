// Loudness of a stretch of samples: what a meter shows and what counts as voiced. Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace voxrt::audio {

// A stretch is voiced when its RMS is above this; meant for stretches of one tick (80 ms).
inline constexpr float kVoicedDbfs = -50.0f;

// Level of digital silence; every level is at least this.
inline constexpr float kSilenceDbfs = -120.0f;

struct Level {
  float peak = 0.0f;  // largest |sample|
  float rms = 0.0f;
};

// Level over many stretches, for a meter that is read now and then.
class LevelMeter {
 public:
  void Add(std::span<const float> samples) {
    for (float s : samples) {
      peak_ = std::max(peak_, std::fabs(s));
      sum_ += static_cast<double>(s) * s;
    }
    count_ += samples.size();
  }
  // The level of everything added since the last Take.
  Level Take() {
    const Level level{peak_, count_ > 0 ? static_cast<float>(std::sqrt(sum_ / static_cast<double>(count_))) : 0.0f};
    *this = LevelMeter();
    return level;
  }

 private:
  float peak_ = 0.0f;
  double sum_ = 0.0;
  size_t count_ = 0;
};

inline Level MeasureLevel(std::span<const float> samples) {
  LevelMeter meter;
  meter.Add(samples);
  return meter.Take();
}

// 1.0 -> 0 dBFS.
inline float ToDbfs(float amplitude) { return amplitude > 1e-6f ? 20.0f * std::log10(amplitude) : kSilenceDbfs; }

// tick: [1280] samples of 16 kHz mono. Compares powers, so that the usual case needs neither root nor logarithm.
inline bool IsVoiced(std::span<const float> tick) {
  constexpr double kVoicedPower = 1e-5;  // 10^(kVoicedDbfs / 10)
  double sum = 0.0;
  for (float s : tick) sum += static_cast<double>(s) * s;
  return sum > kVoicedPower * static_cast<double>(tick.size());
}

}  // namespace voxrt::audio
