// VoiceGate: server-side turn detection by energy. Cuts a stream of samples into utterances: speech begins after 60 ms
// above the threshold and ends after a configured silence; audio before it is kept only as far as the padding reaches.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "server/protocol/events.h"

namespace voxrt::server {

class VoiceGate {
 public:
  struct Action {
    enum class Type : uint8_t { kStarted, kSamples, kStopped };
    Type type;
    int64_t audio_ms = 0;        // kStarted, kStopped: since the first sample ever pushed
    std::vector<float> samples;  // kSamples: of the utterance
  };

  explicit VoiceGate(const VadOptions& options);
  void Configure(const VadOptions& options);
  // Samples at 16 kHz. Frames of 20 ms decide.
  void Push(std::span<const float> samples, std::vector<Action>* actions);
  // Ends a running utterance by command; its rest comes out, without kStopped.
  void EndUtterance(std::vector<Action>* actions);
  bool speaking() const { return speaking_; }

 private:
  void Frame(std::span<const float> frame, std::vector<Action>* actions);
  static void Emit(std::span<const float> samples, std::vector<Action>* actions);

  VadOptions options_;
  float threshold_power_ = 0.0f;
  std::vector<float> partial_;  // less than a frame
  std::deque<float> padding_;   // before speech
  bool speaking_ = false;
  int voiced_frames_ = 0;  // in a row, while silent
  int64_t silent_ms_ = 0;  // in a row, while speaking
  int64_t frames_ = 0;     // ever
};

}  // namespace voxrt::server
