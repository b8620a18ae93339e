// voxrt listen: the microphone, or live audio on standard input, to text until Ctrl-C.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "audio/capture.h"
#include "audio/level.h"
#include "cli.h"
#include "interrupt.h"
#include "options.h"
#include "sink.h"
#include "stream_run.h"

namespace voxrt::app {
namespace {

constexpr std::chrono::milliseconds kReadTimeout(100);

struct ListenOptions {
  std::string input;  // empty: microphone; "-": standard input
  bool list_devices = false;
  std::string input_device;
  ModelOptions model;
  DecodeOptions decode;
  FormatFlags formats;
  RawOptions raw;
  ScreenFlags screen;
};

// The microphone as a source that ends when the user interrupts or the run is over.
class CaptureSource : public audio::AudioSource {
 public:
  CaptureSource(std::unique_ptr<audio::Capture> capture, const std::atomic<bool>* stop)
      : capture_(std::move(capture)),
        stop_(stop),
        info_{.container = "microphone",
              .codec = "pcm",
              .rate = capture_->device_rate(),
              .channels = 1,
              .duration_s = -1.0} {}

  Result<size_t> Read(std::span<float> samples) override {
    for (;;) {
      if (Interrupted() || stop_->load(std::memory_order_relaxed)) capture_->Stop();
      const bool last = capture_->stopped();
      Result<size_t> count = capture_->Read(samples, kReadTimeout);
      dropped_.store(capture_->dropped_samples(), std::memory_order_relaxed);
      if (!count.ok() || *count > 0 || last) return count;
    }
  }
  const audio::AudioInfo& info() const override { return info_; }
  const std::atomic<uint64_t>* dropped() const { return &dropped_; }

 private:
  std::unique_ptr<audio::Capture> capture_;
  const std::atomic<bool>* stop_;
  audio::AudioInfo info_;
  std::atomic<uint64_t> dropped_ = 0;
};

// Peak of the last moment as a bar that falls slowly, so that the eye can follow.
class LevelMeter {
 public:
  void Take(std::span<const float> samples) {
    constexpr float kFallPerBlock = 0.8f;
    peak_ = std::max(audio::MeasureLevel(samples).peak, peak_ * kFallPerBlock);
  }
  std::string Line(int64_t position_ms) const {
    constexpr int kBar = 20;
    constexpr float kFloorDbfs = -60.0f;
    const float dbfs = std::max(audio::ToDbfs(peak_), kFloorDbfs);
    const int filled = static_cast<int>(std::lround((1.0f - dbfs / kFloorDbfs) * kBar));
    return fmt::format("[{:#<{}}{:-<{}}] {:3.0f} dB  {}  Ctrl-C ends", "", filled, "", kBar - filled, dbfs,
                       FormatClock(position_ms));
  }

 private:
  float peak_ = 0.0f;
};

int ListDevices(Screen& screen) {
  const Result<std::vector<audio::CaptureDevice>> devices = audio::ListCaptureDevices();
  if (!devices.ok()) {
    screen.Error(devices.status().message());
    return kInput;
  }
  if (devices->empty()) screen.Note("no input device found");
  std::string out;
  for (const audio::CaptureDevice& device : *devices) {
    out += fmt::format("{}\t{}\t{}, {} channels, {:.0f} Hz{}\n", device.index, device.name, device.host_api,
                       device.channels, device.default_rate, device.is_default ? ", default" : "");
  }
  return screen.Out(out).ok() ? kOk : kSomeFailed;
}

class ListenCommand {
 public:
  ListenCommand(const ListenOptions& options, Screen& screen) : options_(options), screen_(screen) {}

  int Run() {
    if (options_.list_devices) return ListDevices(screen_);
    const std::vector<OutputFormat> formats = ToFormats(options_.formats);
    if (formats.size() > 1)
      return Fail({StatusCode::kInvalidArgument, "choose one output format (see voxrt listen --help)"}, kUsage);
    const Status remote = CheckRemoteOutput(options_.model, options_.formats);
    if (!remote.ok()) return Fail(remote, kUsage);
    Result<std::shared_ptr<engine::Engine>> engine = LoadEngine(options_.model, 1, screen_);
    if (!engine.ok()) return ModelExitCode(engine.status());

    // Opened only now: what a device records while a model loads would be stale.
    Result<std::unique_ptr<audio::AudioSource>> source = OpenSource();
    if (!source.ok()) return Interrupted() ? kInterrupted : Fail(source.status(), kInput);
    const std::unique_ptr<Sink> sink = MakeSink(formats[0], options_.input.empty() ? "microphone" : "-", false,
                                                [this](std::string_view bytes) { return screen_.Out(bytes); });
    const StreamRunResult result = RunStream(**engine, **source, {sink.get()}, screen_, RunOptions());
    if (!result.status.ok()) return Fail(result.status, result.exit_code);
    return result.exit_code;
  }

 private:
  int Fail(const Status& status, int code) {
    if (!status.message().empty()) screen_.Error(status.message());
    return code;
  }

  Result<std::unique_ptr<audio::AudioSource>> OpenSource() {
    if (!options_.input.empty()) {
      return audio::OpenReader(StandardInputReader(&stop_), "standard input", {.raw = ToRawFormat(options_.raw)});
    }
    VOXRT_ASSIGN_OR_RETURN(std::unique_ptr<audio::Capture> capture,
                           audio::Capture::Open({.device = options_.input_device}));
    screen_.Note(fmt::format("listening to {} ({} Hz); Ctrl-C ends", capture->device().name, capture->device_rate()));
    auto source = std::make_unique<CaptureSource>(std::move(capture), &stop_);
    dropped_ = source->dropped();
    dropped_rate_ = source->info().rate;
    return std::unique_ptr<audio::AudioSource>(std::move(source));
  }

  StreamRunOptions RunOptions() {
    return {.session = {.delay_ms = options_.decode.delay_ms,
                        .temperature = options_.decode.temperature,
                        .seed = options_.decode.seed,
                        .live = true},
            .name = options_.input.empty() ? "microphone" : "standard input",
            .stop = &stop_,
            .on_samples = [this](std::span<const float> samples) { meter_.Take(samples); },
            .dropped_samples = dropped_,
            .dropped_rate = dropped_rate_,
            .status_line = [this](int64_t position_ms) { return meter_.Line(position_ms); }};
  }

  const ListenOptions& options_;
  Screen& screen_;
  std::atomic<bool> stop_ = false;
  const std::atomic<uint64_t>* dropped_ = nullptr;
  int dropped_rate_ = 16000;
  LevelMeter meter_;
};

int RunListen(const ListenOptions& options) {
  Screen screen(ToScreenOptions(options.screen));
  return ListenCommand(options, screen).Run();
}

}  // namespace

void AddListen(Cli& cli) {
  auto options = std::make_shared<ListenOptions>();
  CLI::App* command =
      cli.app.add_subcommand("listen", "Transcribe the microphone, or live audio on standard input, until Ctrl-C");
  command->add_option("input", options->input, "- reads standard input instead of the microphone")
      ->check(CLI::IsMember({"-"}))
      ->type_name("INPUT");
  command->add_flag("--list-devices", options->list_devices, "List the input devices and end");
  command
      ->add_option("--input-device", options->input_device,
                   "Index or part of the name of an input device; default: the system's")
      ->type_name("DEVICE");
  AddModelOptions(*command, &options->model);
  AddServerOptions(*command, &options->model);
  AddDecodeOptions(*command, &options->decode);
  AddFormatOptions(*command, &options->formats);
  AddRawOptions(*command, &options->raw);
  AddScreenOptions(*command, &options->screen);
  command->callback([&cli, options] { cli.body = [options] { return RunListen(*options); }; });
}

}  // namespace voxrt::app
