#include "server/stream/voice_gate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace voxrt::server {
namespace {

using Type = VoiceGate::Action::Type;

VadOptions Options() {
  VadOptions options;
  options.enabled = true;
  options.prefix_padding_ms = 100;
  options.silence_duration_ms = 200;
  return options;
}

void Add(std::vector<float>* samples, int ms, float amplitude) {
  for (int i = 0; i < ms * 16; ++i) samples->push_back(amplitude * std::sin(static_cast<float>(i) * 0.1f));
}

std::vector<VoiceGate::Action> Gate(const std::vector<float>& samples, size_t step, bool end = false) {
  VoiceGate gate(Options());
  std::vector<VoiceGate::Action> all;
  for (size_t i = 0; i < samples.size(); i += step) {
    std::vector<VoiceGate::Action> actions;
    gate.Push(std::span(samples).subspan(i, std::min(step, samples.size() - i)), &actions);
    for (VoiceGate::Action& action : actions) {
      if (action.type == Type::kSamples && !all.empty() && all.back().type == Type::kSamples) {
        all.back().samples.insert(all.back().samples.end(), action.samples.begin(), action.samples.end());
      } else {
        all.push_back(std::move(action));
      }
    }
  }
  if (end) gate.EndUtterance(&all);
  return all;
}

TEST(VoiceGate, SpeechIsCutOutWithItsPaddingWhateverTheChunking) {
  std::vector<float> samples;
  Add(&samples, 1000, 0.0f);
  Add(&samples, 500, 0.3f);
  Add(&samples, 1000, 0.0f);
  for (const size_t step : {1, 77, 320, 100000}) {
    const auto actions = Gate(samples, step);
    ASSERT_EQ(actions.size(), 3U) << step;
    EXPECT_EQ(actions[0].type, Type::kStarted);
    EXPECT_EQ(actions[0].audio_ms, 900);
    EXPECT_EQ(actions[1].samples.size(), static_cast<size_t>((100 + 500 + 200) * 16));
    EXPECT_EQ(actions[2].type, Type::kStopped);
    EXPECT_EQ(actions[2].audio_ms, 1700);
  }
}

TEST(VoiceGate, ShortPausesAndClicksDoNotCut) {
  std::vector<float> samples;
  Add(&samples, 300, 0.0f);
  Add(&samples, 20, 0.9f);  // a click
  Add(&samples, 300, 0.0f);
  EXPECT_TRUE(Gate(samples, 320).empty());
  Add(&samples, 300, 0.3f);
  Add(&samples, 150, 0.0f);
  Add(&samples, 300, 0.3f);
  EXPECT_EQ(Gate(samples, 320).size(), 2U) << "started once, one run of samples, not stopped";
}

TEST(VoiceGate, ACommandEndsSpeechWithoutStop) {
  std::vector<float> samples;
  Add(&samples, 403, 0.3f);
  const auto actions = Gate(samples, 1000, true);
  size_t total = 0;
  for (const auto& action : actions) total += action.samples.size();
  EXPECT_EQ(total, samples.size());
  EXPECT_EQ(actions.back().type, Type::kSamples);
}

TEST(VoiceGate, NanIsSilence) {
  std::vector<float> samples(16000, std::nanf(""));
  EXPECT_TRUE(Gate(samples, 320).empty());
}

}  // namespace
}  // namespace voxrt::server
