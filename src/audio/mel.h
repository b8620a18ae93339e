// MelStream: 16 kHz samples in, log-mel rows out, as soon as each row's 400 samples exist. Any chunking gives the same
// rows as the whole signal at once (docs/model.md 2).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace voxrt::audio {

struct MelOptions {
  int sample_rate = 16000;
  int bins = 128;
  int hop_samples = 160;
  int window_samples = 400;
  float log_mel_max = 1.5f;
};

class MelStream {
 public:
  explicit MelStream(const MelOptions& options);
  ~MelStream();
  MelStream(MelStream&&) noexcept;
  MelStream& operator=(MelStream&&) noexcept;

  // Appends the rows that became complete to `rows` (row-major, `bins` floats each); returns how many.
  int64_t Push(std::span<const float> samples, std::vector<float>* rows);
  // Ends the signal: mirrors the last 40 samples; afterwards total samples / hop rows exist. Not needed when enough
  // zeros follow.
  int64_t Finish(std::vector<float>* rows);
  // Back to the state before the first sample.
  void Reset();

  int64_t samples() const;  // pushed so far
  int64_t rows() const;     // emitted so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Slaney filter bank [window_samples / 2 + 1][bins], fp64 rounded to fp32: for tests.
std::vector<float> MelFilterBank(const MelOptions& options);

}  // namespace voxrt::audio
