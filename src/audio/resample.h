// Resampler: one mono stream from one rate to another through libsoxr (HQ). However the samples are cut up, the output
// is the same, bit for bit. Built without libsoxr only equal rates work, and the error names the rate.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::audio {

class Resampler {
 public:
  // `name` begins the error message. Equal rates pass samples through.
  static Result<Resampler> Create(int from_rate, int to_rate, std::string_view name);
  ~Resampler();
  Resampler(Resampler&&) noexcept;
  Resampler& operator=(Resampler&&) noexcept;

  // Appends the samples that became complete. Fails only when memory runs out.
  Status Push(std::span<const float> samples, std::vector<float>* out);
  // Ends the stream: appends what the filter still holds. Afterwards the next Push begins a new stream.
  Status Finish(std::vector<float>* out);

 private:
  struct State;
  explicit Resampler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;  // null: equal rates
};

}  // namespace voxrt::audio
