#include "server/stream/voice_gate.h"

#include <cmath>

namespace voxrt::server {
namespace {

constexpr size_t kFrameSamples = 320;
constexpr int kFrameMs = 20;
constexpr int kStartFrames = 3;

// threshold 0 -> -60 dBFS, 0.5 -> -45 dBFS, 1 -> -30 dBFS.
float ThresholdPower(double threshold) { return static_cast<float>(std::pow(10.0, (-60.0 + 30.0 * threshold) / 10.0)); }

}  // namespace

VoiceGate::VoiceGate(const VadOptions& options) { Configure(options); }

void VoiceGate::Configure(const VadOptions& options) {
  options_ = options;
  threshold_power_ = ThresholdPower(options.threshold);
}

void VoiceGate::Push(std::span<const float> samples, std::vector<Action>* actions) {
  while (!samples.empty()) {
    const size_t take = std::min(samples.size(), kFrameSamples - partial_.size());
    partial_.insert(partial_.end(), samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(take));
    samples = samples.subspan(take);
    if (partial_.size() < kFrameSamples) return;
    const std::vector<float> frame = std::move(partial_);
    partial_.clear();
    Frame(frame, actions);
  }
}

void VoiceGate::Frame(std::span<const float> frame, std::vector<Action>* actions) {
  float energy = 0.0f;
  for (const float sample : frame) energy += std::isfinite(sample) ? sample * sample : 0.0f;
  const bool voiced = energy > threshold_power_ * static_cast<float>(frame.size());
  ++frames_;
  if (speaking_) {
    Emit(frame, actions);
    silent_ms_ = voiced ? 0 : silent_ms_ + kFrameMs;
    if (silent_ms_ < options_.silence_duration_ms) return;
    speaking_ = false;
    voiced_frames_ = 0;
    actions->push_back({Action::Type::kStopped, frames_ * kFrameMs, {}});
    return;
  }
  padding_.insert(padding_.end(), frame.begin(), frame.end());
  voiced_frames_ = voiced ? voiced_frames_ + 1 : 0;
  const size_t keep =
      static_cast<size_t>(options_.prefix_padding_ms) * 16 + static_cast<size_t>(voiced_frames_) * kFrameSamples;
  while (padding_.size() > keep) padding_.pop_front();
  if (voiced_frames_ < kStartFrames) return;
  speaking_ = true;
  silent_ms_ = 0;
  const int64_t kept_ms = static_cast<int64_t>(padding_.size()) / 16;
  actions->push_back({Action::Type::kStarted, frames_ * kFrameMs - kept_ms, {}});
  actions->push_back({Action::Type::kSamples, 0, std::vector<float>(padding_.begin(), padding_.end())});
  padding_.clear();
}

void VoiceGate::EndUtterance(std::vector<Action>* actions) {
  if (speaking_) Emit(partial_, actions);
  // Not speaking: what is held may still be the beginning of a word; the commit says that it counts.
  if (!speaking_) {
    std::vector<float> rest(padding_.begin(), padding_.end());
    rest.insert(rest.end(), partial_.begin(), partial_.end());
    Emit(rest, actions);
  }
  padding_.clear();
  partial_.clear();
  speaking_ = false;
  voiced_frames_ = 0;
}

void VoiceGate::Emit(std::span<const float> samples, std::vector<Action>* actions) {
  if (samples.empty()) return;
  if (actions->empty() || actions->back().type != Action::Type::kSamples)
    actions->push_back({Action::Type::kSamples, 0, {}});
  std::vector<float>& to = actions->back().samples;
  to.insert(to.end(), samples.begin(), samples.end());
}

}  // namespace voxrt::server
