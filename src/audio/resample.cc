// libsoxr behind Resampler's contract. One thread; HQ is what the model's own tools resample with.
#include "audio/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#ifdef VOXRT_HAVE_SOXR
#include <soxr.h>
#endif

namespace voxrt::audio {

#ifdef VOXRT_HAVE_SOXR

namespace {

struct SoxrDelete {
  void operator()(soxr* handle) const { soxr_delete(handle); }
};

// At most this many input samples are handed to libsoxr at once: bounds its internal buffers.
constexpr size_t kBlockSamples = 8192;

Status SoxrFailed(const char* what) {
  return {StatusCode::kResourceExhausted, fmt::format("resampling failed: {}; free memory and try again", what)};
}

}  // namespace

struct Resampler::State {
  std::unique_ptr<soxr, SoxrDelete> handle;
  double ratio = 1.0;  // output samples per input sample

  // samples: null ends the stream.
  Status Process(const float* samples, size_t count, std::vector<float>* out) {
    const size_t room = static_cast<size_t>(std::ceil(static_cast<double>(count) * ratio)) + 4096;
    for (;;) {
      const size_t at = out->size();
      out->resize(at + room);
      size_t consumed = 0, produced = 0;
      const soxr_error_t error =
          soxr_process(handle.get(), samples, count, &consumed, out->data() + at, room, &produced);
      out->resize(at + (error == nullptr ? produced : 0));
      if (error != nullptr) return SoxrFailed(error);
      if (samples != nullptr) {
        samples += consumed;
        count -= consumed;
      }
      if (count == 0 && produced < room) return {};
    }
  }
};

Result<Resampler> Resampler::Create(int from_rate, int to_rate, std::string_view name) {
  VOXRT_CHECK(from_rate > 0 && to_rate > 0);
  if (from_rate == to_rate) return Resampler(nullptr);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  soxr_error_t error = nullptr;
  auto state = std::make_unique<State>();
  state->handle.reset(soxr_create(from_rate, to_rate, 1, &error, &io, &quality, &runtime));
  if (state->handle == nullptr || error != nullptr) {
    return Status(StatusCode::kInvalidAudio,
                  fmt::format("{}: cannot resample {} Hz to {} Hz ({}); convert it to 16000 Hz first", name, from_rate,
                              to_rate, error != nullptr ? error : "no reason given"));
  }
  state->ratio = static_cast<double>(to_rate) / from_rate;
  return Resampler(std::move(state));
}

Status Resampler::Push(std::span<const float> samples, std::vector<float>* out) {
  if (state_ == nullptr) {
    out->insert(out->end(), samples.begin(), samples.end());
    return {};
  }
  while (!samples.empty()) {
    const size_t count = std::min(samples.size(), kBlockSamples);
    VOXRT_RETURN_IF_ERROR(state_->Process(samples.data(), count, out));
    samples = samples.subspan(count);
  }
  return {};
}

Status Resampler::Finish(std::vector<float>* out) {
  if (state_ == nullptr) return {};
  VOXRT_RETURN_IF_ERROR(state_->Process(nullptr, 0, out));
  const soxr_error_t error = soxr_clear(state_->handle.get());
  if (error != nullptr) return SoxrFailed(error);
  return {};
}

#else

struct Resampler::State {};

Result<Resampler> Resampler::Create(int from_rate, int to_rate, std::string_view name) {
  VOXRT_CHECK(from_rate > 0 && to_rate > 0);
  if (from_rate == to_rate) return Resampler(nullptr);
  return Status(
      StatusCode::kInvalidAudio,
      fmt::format("{}: sample rate is {} Hz, expected {} (built without libsoxr); convert it to {} Hz first, e.g. with "
                  "ffmpeg -ar {}",
                  name, from_rate, to_rate, to_rate, to_rate));
}

Status Resampler::Push(std::span<const float> samples, std::vector<float>* out) {
  out->insert(out->end(), samples.begin(), samples.end());
  return {};
}

Status Resampler::Finish(std::vector<float>* /*out*/) { return {}; }

#endif

Resampler::Resampler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Resampler::~Resampler() = default;
Resampler::Resampler(Resampler&&) noexcept = default;
Resampler& Resampler::operator=(Resampler&&) noexcept = default;

}  // namespace voxrt::audio
