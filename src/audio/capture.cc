// PortAudio calls back on its own real-time thread, which only averages channels and writes to a SampleRing; resampling
// happens on the reading thread.
#include "audio/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#ifdef VOXRT_HAVE_PORTAUDIO
#include <fcntl.h>
#include <portaudio.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "audio/pcm.h"
#include "audio/resample.h"
#include "audio/sample_ring.h"
#endif

namespace voxrt::audio {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::optional<int> ParseIndex(const std::string& text) {
  int index = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, index);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return index;
}

std::string Names(std::span<const CaptureDevice> devices) {
  std::string list;
  for (const CaptureDevice& device : devices) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", device.index, device.name);
  }
  return list;
}

}  // namespace

Result<CaptureDevice> ChooseCaptureDevice(std::span<const CaptureDevice> devices, const std::string& wanted) {
  if (devices.empty()) {
    return Status(
        StatusCode::kUnavailable,
        "no microphone found (PortAudio lists no input device); connect one, or give raw PCM on standard input");
  }
  if (wanted.empty()) {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [](const CaptureDevice& d) { return d.is_default; });
    return found != devices.end() ? *found : devices.front();
  }
  if (const auto index = ParseIndex(wanted)) {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [&](const CaptureDevice& d) { return d.index == *index; });
    if (found != devices.end()) return *found;
  }
  std::vector<CaptureDevice> matches;
  for (const CaptureDevice& device : devices) {
    if (device.name == wanted) return device;
    if (Lower(device.name).find(Lower(wanted)) != std::string::npos) matches.push_back(device);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty()) {
    return Status(
        StatusCode::kNotFound,
        fmt::format("no input device \"{}\", expected an index or a part of a name of: {}", wanted, Names(devices)));
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("input device \"{}\" is ambiguous: {}; give the index", wanted, Names(matches)));
}

#ifdef VOXRT_HAVE_PORTAUDIO

namespace {

constexpr unsigned long kBlockFrames = 320;  // NOLINT(google-runtime-int): PortAudio's type
constexpr int kMaxDeviceChannels = 2;        // more are not asked for

// Keeps what ALSA and JACK print while they look for hardware off standard error, for the life of this object.
class QuietStandardError {
 public:
  QuietStandardError() {
    std::fflush(stderr);
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing < 0) return;
    saved_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (saved_ >= 0) dup2(nothing, STDERR_FILENO);
    close(nothing);
  }
  ~QuietStandardError() {
    if (saved_ < 0) return;
    std::fflush(stderr);
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }
  QuietStandardError(const QuietStandardError&) = delete;
  QuietStandardError& operator=(const QuietStandardError&) = delete;

 private:
  int saved_ = -1;
};

Status PortAudioFailed(const char* what, PaError error) {
  std::string detail = Pa_GetErrorText(error);
  if (error == paUnanticipatedHostError) {
    const PaHostErrorInfo* host = Pa_GetLastHostErrorInfo();
    if (host != nullptr && host->errorText != nullptr && *host->errorText != '\0') detail = host->errorText;
  }
  return {StatusCode::kUnavailable,
          fmt::format("{}: {}; check that the microphone is connected and not used by another program", what, detail)};
}

// Counted by PortAudio itself: sessions may nest.
class PortAudioSession {
 public:
  static Result<std::unique_ptr<PortAudioSession>> Begin() {
    const QuietStandardError quiet;
    const PaError error = Pa_Initialize();
    if (error != paNoError) return PortAudioFailed("the sound system cannot be used", error);
    return std::unique_ptr<PortAudioSession>(new PortAudioSession);
  }
  ~PortAudioSession() {
    const QuietStandardError quiet;
    Pa_Terminate();
  }
  PortAudioSession(const PortAudioSession&) = delete;
  PortAudioSession& operator=(const PortAudioSession&) = delete;

  std::vector<CaptureDevice> Devices() const {
    std::vector<CaptureDevice> devices;
    const PaDeviceIndex preferred = Pa_GetDefaultInputDevice();
    for (PaDeviceIndex i = 0; i < Pa_GetDeviceCount(); ++i) {
      const PaDeviceInfo* info = Pa_GetDeviceInfo(i);
      if (info == nullptr || info->maxInputChannels <= 0) continue;
      const PaHostApiInfo* api = Pa_GetHostApiInfo(info->hostApi);
      devices.push_back({i, info->name, api != nullptr ? api->name : "", info->maxInputChannels,
                         info->defaultSampleRate, i == preferred});
    }
    return devices;
  }

 private:
  PortAudioSession() = default;
};

struct StreamClose {
  void operator()(PaStream* stream) const { Pa_CloseStream(stream); }
};

class PortAudioCapture final : public Capture {
 public:
  PortAudioCapture(std::unique_ptr<PortAudioSession> session, CaptureDevice device, int rate, int channels,
                   Resampler resampler, const CaptureOptions& options)
      : session_(std::move(session)),
        device_(std::move(device)),
        rate_(rate),
        channels_(channels),
        resampler_(std::move(resampler)),
        ring_(static_cast<size_t>(std::max(options.buffer_seconds, 0.1) * rate)),
        block_(static_cast<size_t>(rate) / 10) {}

  Status Start(const PaStreamParameters& parameters) {
    PaStream* stream = nullptr;
    PaError error =
        Pa_OpenStream(&stream, &parameters, nullptr, rate_, kBlockFrames, paClipOff | paDitherOff, &OnSamples, this);
    if (error != paNoError) return PortAudioFailed(Label().c_str(), error);
    stream_.reset(stream);
    error = Pa_StartStream(stream);
    if (error != paNoError) return PortAudioFailed(Label().c_str(), error);
    return {};
  }

  Result<size_t> Read(std::span<float> samples, std::chrono::milliseconds timeout) override {
    if (used_ == queue_.size()) VOXRT_RETURN_IF_ERROR(Refill(timeout));
    const size_t count = std::min(samples.size(), queue_.size() - used_);
    std::copy_n(queue_.begin() + static_cast<std::ptrdiff_t>(used_), count, samples.begin());
    used_ += count;
    meter_.Add(samples.first(count));
    return count;
  }

  void Stop() override {
    if (stopped_) return;
    stopped_ = true;
    Pa_AbortStream(stream_.get());
    ring_.Close();  // no callback runs any more
  }

  bool stopped() const override { return stopped_; }
  const CaptureDevice& device() const override { return device_; }
  int device_rate() const override { return rate_; }
  Level TakeLevel() override { return meter_.Take(); }
  uint64_t dropped_samples() const override { return ring_.dropped_samples(); }

 private:
  static int OnSamples(const void* input, void* /*output*/, unsigned long frames,  // NOLINT(google-runtime-int)
                       const PaStreamCallbackTimeInfo* /*time*/, PaStreamCallbackFlags /*flags*/, void* self) {
    auto& capture = *static_cast<PortAudioCapture*>(self);
    if (input != nullptr) capture.TakeInput(static_cast<const float*>(input), frames);
    return paContinue;
  }

  // input: [frames, channels_]. On the real-time thread.
  void TakeInput(const float* input, size_t frames) {
    std::array<float, 256> mono;
    while (frames > 0) {
      const size_t count = std::min(frames, mono.size());
      for (size_t i = 0; i < count; ++i) {
        float sum = 0.0f;
        for (int c = 0; c < channels_; ++c) sum += CleanSample(*input++);
        mono[i] = sum / static_cast<float>(channels_);
      }
      ring_.Write(std::span(mono).first(count));
      frames -= count;
    }
  }

  std::string Label() const { return fmt::format("microphone \"{}\"", device_.name); }

  Status Refill(std::chrono::milliseconds timeout) {
    queue_.clear();
    used_ = 0;
    if (!ring_.Wait(timeout)) {
      if (stopped_ && !drained_) {
        drained_ = true;
        return resampler_.Finish(&queue_);
      }
      if (!stopped_ && Pa_IsStreamActive(stream_.get()) != 1) {
        return {StatusCode::kIo, fmt::format("{} stopped recording; check that it is still connected", Label())};
      }
      return {};
    }
    const size_t count = ring_.Read(block_);
    return resampler_.Push(std::span(block_).first(count), &queue_);
  }

  std::unique_ptr<PortAudioSession> session_;
  CaptureDevice device_;
  int rate_;
  int channels_;
  Resampler resampler_;
  SampleRing ring_;
  std::vector<float> block_;  // [rate_ / 10] at the device's rate
  std::vector<float> queue_;  // at the target rate, the first used_ are handed out
  size_t used_ = 0;
  LevelMeter meter_;
  bool stopped_ = false;
  bool drained_ = false;
  std::unique_ptr<PaStream, StreamClose> stream_;  // last: closed before the ring it writes to is gone
};

}  // namespace

Result<std::vector<CaptureDevice>> ListCaptureDevices() {
  VOXRT_ASSIGN_OR_RETURN(const auto session, PortAudioSession::Begin());
  return session->Devices();
}

Result<std::unique_ptr<Capture>> Capture::Open(const CaptureOptions& options) {
  VOXRT_ASSIGN_OR_RETURN(auto session, PortAudioSession::Begin());
  VOXRT_ASSIGN_OR_RETURN(CaptureDevice device, ChooseCaptureDevice(session->Devices(), options.device));
  const QuietStandardError quiet;
  PaStreamParameters parameters{};
  parameters.device = device.index;
  parameters.sampleFormat = paFloat32;
  parameters.suggestedLatency = Pa_GetDeviceInfo(device.index)->defaultLowInputLatency;
  // The rate that is wanted, else the device's own; one channel, else two averaged.
  for (const double rate : {static_cast<double>(options.target_rate), device.default_rate}) {
    for (int channels = 1; channels <= std::min(device.channels, kMaxDeviceChannels); ++channels) {
      parameters.channelCount = channels;
      if (Pa_IsFormatSupported(&parameters, nullptr, rate) != paFormatIsSupported) continue;
      VOXRT_ASSIGN_OR_RETURN(Resampler resampler,
                             Resampler::Create(static_cast<int>(rate), options.target_rate, device.name));
      auto capture = std::make_unique<PortAudioCapture>(std::move(session), std::move(device), static_cast<int>(rate),
                                                        channels, std::move(resampler), options);
      VOXRT_RETURN_IF_ERROR(capture->Start(parameters));
      return std::unique_ptr<Capture>(std::move(capture));
    }
  }
  return Status(StatusCode::kUnavailable,
                fmt::format("microphone \"{}\" records neither at {} Hz nor at its own {:.0f} Hz; choose another "
                            "device",
                            device.name, options.target_rate, device.default_rate));
}

#else

namespace {

Status NotBuiltIn() {
  return {StatusCode::kUnavailable,
          "this build has no microphone capture (made without PortAudio); give raw PCM on standard input instead"};
}

}  // namespace

Result<std::vector<CaptureDevice>> ListCaptureDevices() { return NotBuiltIn(); }
Result<std::unique_ptr<Capture>> Capture::Open(const CaptureOptions& /*options*/) { return NotBuiltIn(); }

#endif

}  // namespace voxrt::audio
