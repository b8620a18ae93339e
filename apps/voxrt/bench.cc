// voxrt bench: how fast this machine runs a model, live and offline, stage by stage, against the bandwidth of the
// memory that holds the weights.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "backend/registry.h"
#include "base/json.h"
#include "bench_machine.h"
#include "bench_scenarios.h"
#include "cli.h"
#include "options.h"

namespace voxrt::app {
namespace {

using base::Json;

constexpr int64_t kSampleRate = 16000;

struct BenchOptions {
  ModelOptions model;
  ScreenFlags screen;
  std::vector<std::string> audio;
  double seconds = 300.0;
  double live_seconds = 300.0;
  int speculation_rows = 0;
  bool json = false;
};

// Clips read one after another, again from the first, until there are `seconds` of them.
Result<std::vector<float>> JoinClips(std::vector<std::string> paths, double seconds) {
  if (paths.empty()) {
    std::error_code error;
    const std::filesystem::path clips = std::filesystem::path(FindDemoModel()) / "clips";
    for (const auto& entry : std::filesystem::directory_iterator(clips, error)) {
      if (entry.path().extension() == ".wav") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
  }
  if (paths.empty())
    return Status(StatusCode::kNotFound, "no clips beside the demo checkpoint; name files with --audio");
  const auto wanted = static_cast<size_t>(seconds * kSampleRate);
  std::vector<float> samples;
  std::vector<float> block(16384);
  for (size_t i = 0; samples.size() < wanted; ++i) {
    if (i == paths.size() && samples.empty())
      return Status(StatusCode::kInvalidAudio, "the audio files hold no samples");
    VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<audio::AudioSource> source,
                           audio::OpenFile(paths[i % paths.size()], {}));
    for (;;) {
      VOXRT_ASSIGN_OR_RETURN(const size_t count, source->Read(block));
      if (count == 0) break;
      samples.insert(samples.end(), block.begin(), block.begin() + static_cast<ptrdiff_t>(count));
    }
  }
  samples.resize(wanted);
  return samples;
}

class BenchCommand {
 public:
  BenchCommand(const BenchOptions& options, Screen& screen) : options_(options), screen_(screen) {}

  int Run() {
    Result<std::string> model = ResolveModel(options_.model.model, screen_);
    if (!model.ok()) return Fail(model.status(), kModel);
    model_path_ = *model;
    Result<std::vector<float>> samples = JoinClips(options_.audio, std::max(options_.seconds, options_.live_seconds));
    if (!samples.ok()) return Fail(samples.status(), kInput);
    samples_ = *std::move(samples);
    if (Status status = Measure(); !status.ok()) return Fail(status, ModelExitCode(status));
    const Status written = screen_.Out(options_.json ? result_.Dump(2) + "\n" : Text());
    if (!written.ok()) return Fail(written, kSomeFailed);
    return kOk;
  }

 private:
  int Fail(const Status& status, int code) {
    if (!status.message().empty()) screen_.Error(status.message());
    return code;
  }

  std::span<const float> FirstSeconds(double seconds) const {
    return std::span(samples_).first(static_cast<size_t>(seconds * kSampleRate));
  }

  Result<std::shared_ptr<engine::Engine>> Load(int speculation_rows) const {
    return engine::Engine::Create({.model_path = model_path_,
                                   .data_path = options_.model.data_path,
                                   .backend = options_.model.backend,
                                   .device = options_.model.device,
                                   .threads = options_.model.threads,
                                   .kv_type = options_.model.kv_type,
                                   .head_scan = options_.model.head_scan,
                                   .max_sessions = 1,
                                   .speculation_rows = speculation_rows,
                                   .progress = {}});
  }

  Status Measure() {
    const int threads = options_.model.threads > 0 ? options_.model.threads : CpuCount();
    screen_.SetStatus("measuring read bandwidth");
    read_bytes_per_s_ = MeasureReadBandwidth(threads);
    ResetPeakMemory();  // the buffer just read is not the engine's
    const int64_t baseline_anonymous = ReadProcessMemory().anonymous_bytes;
    {
      VOXRT_ASSIGN_OR_RETURN(const std::shared_ptr<const weights::Checkpoint> checkpoint,
                             weights::Checkpoint::Open(model_path_, {.data_path = options_.model.data_path,
                                                                     .threads = options_.model.threads,
                                                                     .scan_values = false,
                                                                     .progress = {}}));
      stage_bytes_ = CountStageBytes(*checkpoint);
      screen_.SetStatus("measuring mel and head");
      mel_ms_ = MeasureMel(checkpoint->config().audio, FirstSeconds(std::min(options_.seconds, 60.0)));
      VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Device> device,
                             backend::OpenDevice(options_.model.backend, {.ordinal = options_.model.device,
                                                                          .threads = options_.model.threads,
                                                                          .head_scan = options_.model.head_scan}));
      peak_ = PeakFor(device->info(), read_bytes_per_s_);
      VOXRT_ASSIGN_OR_RETURN(head_ms_, MeasureHead(*checkpoint, *device));
    }
    VOXRT_ASSIGN_OR_RETURN(const std::shared_ptr<engine::Engine> engine, Load(options_.speculation_rows));
    screen_.SetStatus("live");
    VOXRT_ASSIGN_OR_RETURN(live_, RunLive(*engine, FirstSeconds(options_.live_seconds), kLiveWarmupTicks));
    screen_.SetStatus("offline");
    VOXRT_ASSIGN_OR_RETURN(offline_, RunOffline(*engine, FirstSeconds(options_.seconds)));
    const ProcessMemory memory = ReadProcessMemory();
    const engine::EngineInfo info = engine->info();
    screen_.SetStatus("offline without speculation");
    OfflineResult plain = offline_;
    if (info.speculation_rows > 1) {
      VOXRT_ASSIGN_OR_RETURN(const std::shared_ptr<engine::Engine> plain_engine, Load(1));
      VOXRT_ASSIGN_OR_RETURN(plain, RunOffline(*plain_engine, FirstSeconds(options_.seconds)));
    }
    screen_.ClearStatus();
    Collect(threads, info, memory, baseline_anonymous, plain);
    return {};
  }

  void Collect(int threads, const engine::EngineInfo& info, const ProcessMemory& memory, int64_t baseline_anonymous,
               const OfflineResult& plain) {
    const int64_t decode_bytes = stage_bytes_.decoder + stage_bytes_.head;
    result_ = Json::MakeObject({{"machine", Json::MakeObject({{"cpu", CpuName()},
                                                              {"cores", CpuCount()},
                                                              {"threads", threads},
                                                              {"read_gb_per_s", read_bytes_per_s_ / 1e9}})},
                                {"model", Json::MakeObject({{"path", info.model_path},
                                                            {"layout", info.layout},
                                                            {"formats", info.formats},
                                                            {"parameters", info.parameters},
                                                            {"weight_bytes", info.weight_bytes}})},
                                {"engine", Json::MakeObject({{"backend", info.backend},
                                                             {"device", info.device},
                                                             {"kv_type", info.kv_type},
                                                             {"head_scan", options_.model.head_scan},
                                                             {"speculation_rows", info.speculation_rows},
                                                             {"load_seconds", info.load_seconds}})}});
    if (peak_.nominal && peak_.bytes_per_s > 0) result_["engine"]["nominal_gb_per_s"] = peak_.bytes_per_s / 1e9;
    result_["memory"] = Json::MakeObject({{"peak_rss_bytes", memory.peak_bytes},
                                          {"anonymous_bytes", memory.anonymous_bytes - baseline_anonymous},
                                          {"session_bytes_at_most", info.session_bytes_at_most}});
    result_["live"] =
        Json::MakeObject({{"ticks", live_.ticks},
                          {"p50_ms", live_.p50_ms},
                          {"p90_ms", live_.p90_ms},
                          {"p99_ms", live_.p99_ms},
                          {"max_ms", live_.max_ms},
                          {"x_realtime", live_.x_realtime},
                          {"weights", WeightRate(stage_bytes_.encoder + decode_bytes, live_.p50_ms, peak_)}});
    result_["offline"] = OfflineJson(offline_);
    result_["offline_plain"] = OfflineJson(plain);
    result_["stages"] =
        Json::MakeObject({{"mel_ms_per_tick", mel_ms_},
                          {"encode_ms_per_tick_offline", offline_.encode_ms_per_tick},
                          {"decode_ms_per_step", plain.decode_ms_per_pass},
                          {"decode_step_weights", WeightRate(decode_bytes, plain.decode_ms_per_pass, peak_)},
                          {"head_ms", head_ms_},
                          {"head_weights", WeightRate(stage_bytes_.head, head_ms_, peak_)}});
  }

  static Json OfflineJson(const OfflineResult& result) {
    return Json::MakeObject({{"ticks", result.ticks},
                             {"seconds", result.seconds},
                             {"x_realtime", result.x_realtime},
                             {"encode_ms_per_tick", result.encode_ms_per_tick},
                             {"decode_ms_per_tick", result.decode_ms_per_tick},
                             {"decode_passes", result.decode_passes},
                             {"decode_ms_per_pass", result.decode_ms_per_pass},
                             {"tokens_per_pass", result.tokens_per_pass}});
  }

  double Number(std::initializer_list<std::string_view> path) const {
    const Json* at = &result_;
    for (const std::string_view key : path) at = at->Find(key);
    return at->AsDouble().value_or(0.0);
  }

  std::string Text() const {
    std::string out;
    const auto line = [&out](std::string_view name, const std::string& value) {
      out += fmt::format("{:<34} {}\n", name, value);
    };
    line("machine",
         fmt::format("{}, {} cores, {:.1f} GB/s read by {} threads", *result_.Find("machine")->Find("cpu")->AsString(),
                     CpuCount(), read_bytes_per_s_ / 1e9, static_cast<int>(Number({"machine", "threads"}))));
    if (peak_.nominal) {
      line("device", fmt::format("{}, {}", *result_.Find("engine")->Find("device")->AsString(),
                                 peak_.bytes_per_s > 0
                                     ? fmt::format("nominal memory bandwidth {:.1f} GB/s", peak_.bytes_per_s / 1e9)
                                     : "memory bandwidth unknown"));
    }
    line("model", fmt::format("{}, {:.1f} M parameters, {:.1f} MB", model_path_, Number({"model", "parameters"}) / 1e6,
                              Number({"model", "weight_bytes"}) / 1e6));
    line("load", fmt::format("{:.2f} s", Number({"engine", "load_seconds"})));
    line("peak resident memory", fmt::format("{:.1f} MB", Number({"memory", "peak_rss_bytes"}) / 1e6));
    line("live, ms per 80 ms tick", fmt::format("p50 {:.3f}  p90 {:.3f}  p99 {:.3f}  max {:.3f}  ({} ticks)",
                                                live_.p50_ms, live_.p90_ms, live_.p99_ms, live_.max_ms, live_.ticks));
    line("live", fmt::format("{:.1f}x real time  {}", live_.x_realtime,
                             WeightRateText(*result_.Find("live")->Find("weights"), " of weights")));
    line("offline", fmt::format("{:.1f}x real time, {:.2f} tokens per decoder pass", offline_.x_realtime,
                                offline_.tokens_per_pass));
    line("offline without speculation", fmt::format("{:.1f}x real time", Number({"offline_plain", "x_realtime"})));
    line("mel, ms per tick", fmt::format("{:.3f}", mel_ms_));
    line("encoder, ms per tick (offline)", fmt::format("{:.3f}", offline_.encode_ms_per_tick));
    line("decoder step with head, ms",
         fmt::format("{:.3f}  {}", Number({"stages", "decode_ms_per_step"}),
                     WeightRateText(*result_.Find("stages")->Find("decode_step_weights"), " of weights")));
    line("head alone, ms",
         fmt::format("{:.3f}  {}", head_ms_, WeightRateText(*result_.Find("stages")->Find("head_weights"), "")));
    return out;
  }

  static constexpr int64_t kLiveWarmupTicks = 10;

  const BenchOptions& options_;
  Screen& screen_;
  std::string model_path_;
  std::vector<float> samples_;
  double read_bytes_per_s_ = 0.0;
  MemoryPeak peak_;
  StageBytes stage_bytes_;
  double mel_ms_ = 0.0;
  double head_ms_ = 0.0;
  LiveResult live_;
  OfflineResult offline_;
  Json result_;
};

int RunBench(const BenchOptions& options) {
  Screen screen(ToScreenOptions(options.screen));
  return BenchCommand(options, screen).Run();
}

}  // namespace

void AddBench(Cli& cli) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = cli.app.add_subcommand("bench", "Measure speed and memory on this machine");
  AddModelOptions(*command, &options->model);
  command->add_option("--audio", options->audio, "Audio to use instead of the demo clips, joined and repeated")
      ->type_name("FILE");
  command->add_option("--seconds", options->seconds, "Length of the joined audio of the offline scenarios")
      ->check(CLI::Range(10.0, 36000.0))
      ->capture_default_str()
      ->type_name("S");
  command->add_option("--live-seconds", options->live_seconds, "Length of the joined audio of the live scenario")
      ->check(CLI::Range(10.0, 36000.0))
      ->capture_default_str()
      ->type_name("S");
  command
      ->add_option("--speculation-rows", options->speculation_rows,
                   "Decoder rows per pass of a long queue; 1 = off, 0 = what suits the backend")
      ->check(CLI::Range(0, 64))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--json", options->json, "All figures as one JSON object");
  AddScreenOptions(*command, &options->screen);
  command->callback([&cli, options] { cli.body = [options] { return RunBench(*options); }; });
}

}  // namespace voxrt::app
