// QueuedSource: what every AudioSource shares. A subclass pulls blocks of mono samples at the input's own rate; this
// class resamples them and hands them out in the sizes asked for. Memory: one block and its resampled form.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audio/resample.h"
#include "audio/source.h"

namespace voxrt::audio {

class QueuedSource : public AudioSource {
 public:
  Result<size_t> Read(std::span<float> samples) final;
  const AudioInfo& info() const final { return info_; }

 protected:
  QueuedSource(std::string name, int target_rate) : name_(std::move(name)), target_rate_(target_rate) {}

  // Appends what comes next and returns true, or false at the end. May append nothing, but must not do so without
  // having consumed input. Blocks while nothing has arrived.
  virtual Result<bool> Pull(std::vector<float>* mono) = 0;

  // The samples of following Pulls have this rate. Must be called before the first ones arrive.
  Status SetRate(int rate);

  const std::string& name() const { return name_; }
  AudioInfo info_;

 private:
  Status Refill();

  std::string name_;
  int target_rate_;
  int rate_ = 0;
  std::optional<Resampler> resampler_;
  std::vector<float> pulled_;  // mono at the input's rate
  std::vector<float> queue_;   // mono at the target rate, the first used_ are handed out
  size_t used_ = 0;
  bool ended_ = false;
  Status failure_;  // sticky
};

}  // namespace voxrt::audio
