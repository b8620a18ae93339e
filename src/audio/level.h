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

inline Level MeasureLevel(std::span<const float> samples) {
  Level level;
  double sum = 0.0;
  for (float s : samples) {
    level.peak = std::max(level.peak, std::fabs(s));
    sum += static_cast<double>(s) * s;
  }
  if (!samples.empty()) level.rms = static_cast<float>(std::sqrt(sum / static_cast<double>(samples.size())));
  return level;
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
