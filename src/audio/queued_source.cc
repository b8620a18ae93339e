// Block after block: pull, resample, hand out. A failure is reported once everything decoded before it has been handed
// out.
#include "audio/queued_source.h"

#include <algorithm>

namespace voxrt::audio {

Status QueuedSource::SetRate(int rate) {
  if (rate == rate_) return {};
  VOXRT_ASSIGN_OR_RETURN(Resampler next, Resampler::Create(rate, target_rate_, name_));
  if (resampler_.has_value()) VOXRT_RETURN_IF_ERROR(resampler_->Finish(&queue_));
  resampler_.emplace(std::move(next));
  rate_ = rate;
  return {};
}

Status QueuedSource::Refill() {
  queue_.clear();
  used_ = 0;
  while (queue_.empty() && !ended_) {
    pulled_.clear();
    Result<bool> more = Pull(&pulled_);
    if (!more.ok()) return more.status();
    if (!pulled_.empty()) {
      VOXRT_CHECK(resampler_.has_value());
      VOXRT_RETURN_IF_ERROR(resampler_->Push(pulled_, &queue_));
    }
    if (!*more) {
      ended_ = true;
      if (resampler_.has_value()) VOXRT_RETURN_IF_ERROR(resampler_->Finish(&queue_));
    }
  }
  return {};
}

Result<size_t> QueuedSource::Read(std::span<float> samples) {
  if (samples.empty()) return size_t{0};
  if (used_ == queue_.size()) {
    if (failure_.ok()) failure_ = Refill();
    if (!failure_.ok() && queue_.empty()) return failure_;
  }
  const size_t count = std::min(samples.size(), queue_.size() - used_);
  std::copy_n(queue_.begin() + static_cast<std::ptrdiff_t>(used_), count, samples.begin());
  used_ += count;
  return count;
}

}  // namespace voxrt::audio
