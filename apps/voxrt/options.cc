// Shared options and the loading of a model; see the header.
#include "options.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "backend/registry.h"
#include "base/log.h"
#include "cli.h"
#include "interrupt.h"
#ifdef VOXRT_HAVE_SERVE
#include "server/client/remote_engine.h"
#endif

namespace voxrt::app {
namespace {

constexpr int kTickMs = 80;
constexpr int kMaxDelayMs = 2400;

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (const backend::BackendEntry& entry : backend::CompiledBackends()) names.emplace_back(entry.name);
  return names;
}

// Names the neighbours of a delay that is no multiple of 80.
std::string CheckDelay(const std::string& text) {
  int delay_ms = 0;
  if (!CLI::detail::lexical_cast(text, delay_ms)) return "found '" + text + "', expected a number of milliseconds";
  if (delay_ms < kTickMs || delay_ms > kMaxDelayMs) {
    return fmt::format("found {}, expected {} to {}", delay_ms, kTickMs, kMaxDelayMs);
  }
  if (delay_ms % kTickMs != 0) {
    const int below = delay_ms / kTickMs * kTickMs;
    return fmt::format("found {}, expected a multiple of {}: use {} or {}", delay_ms, kTickMs, below, below + kTickMs);
  }
  return {};
}

}  // namespace

void AddModelOptions(CLI::App& command, ModelOptions* options) {
  command
      .add_option("-m,--model", options->model,
                  "Checkpoint directory (Mistral or Hugging Face layout) or exported file; default: the bundled demo "
                  "checkpoint")
      ->type_name("PATH");
  command.add_option("--data-path", options->data_path, "Second file of an artifact that was exported in two parts")
      ->type_name("FILE");
  command.add_option("--backend", options->backend, "What computes")
      ->check(CLI::IsMember(BackendNames()))
      ->capture_default_str()
      ->type_name("NAME");
  command.add_option("--device", options->device, "Which device of the backend, from 0")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--threads", options->threads, "Threads of the CPU backend; 0 = one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--kv-type", options->kv_type, "Element type of the attention caches; default: the backend's")
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}))
      ->type_name("TYPE");
  command.add_flag("--head-scan", options->head_scan,
                   "CPU, 16- or 32-bit head: find the best token by an 8-bit scan and exact products of what it cannot "
                   "exclude; same tokens, less reading, memory for the 8-bit copy");
}

void AddServerOptions([[maybe_unused]] CLI::App& command, [[maybe_unused]] ModelOptions* options) {
#ifdef VOXRT_HAVE_SERVE
  CLI::Option* server = command.add_option("--server", options->server,
                                           "Let a voxrt server do the work: http://HOST:PORT or https://HOST:PORT; "
                                           "--model then is the name of a served model");
  server->type_name("URL");
  command
      .add_option("--server-key", options->server_key,
                  "API key of the server; default: VOXRT_API_KEY of the environment")
      ->needs(server)
      ->type_name("KEY");
  command.parse_complete_callback([&command, options] {
    if (options->server.empty()) return;
    for (const char* name :
         {"--data-path", "--backend", "--device", "--threads", "--kv-type", "--head-scan", "--seed", "--streaming"}) {
      const CLI::Option* option = command.get_option_no_throw(name);
      if (option != nullptr && option->count() > 0)
        throw CLI::ValidationError(std::string(name), "does not work with --server, which decides that; leave one out");
    }
  });
#endif
}

void AddDecodeOptions(CLI::App& command, DecodeOptions* options) {
  command
      .add_option("--delay-ms", options->delay_ms,
                  "How far the text trails the audio: a multiple of 80 from 80 to 2400; more is more accurate; "
                  "default: the model's (480)")
      ->check(CLI::Validator(CheckDelay, "", "delay"))
      ->type_name("MS");
  command.add_option("--temperature", options->temperature, "Sampling temperature; 0 = always the most likely token")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str()
      ->type_name("T");
  command.add_option("--seed", options->seed, "Seed of sampling; the same seed gives the same text")
      ->capture_default_str()
      ->type_name("N");
}

void AddFormatOptions(CLI::App& command, FormatFlags* flags) {
  command.add_flag("--txt", flags->txt, "Plain text (the default)");
  command.add_flag("--json", flags->json, "JSON lines: deltas, events, final text with word times, usage");
  command.add_flag("--srt", flags->srt, "SubRip subtitles");
  command.add_flag("--vtt", flags->vtt, "WebVTT subtitles");
  command.add_flag("--tokens", flags->tokens, "The generated token ids of an input on one line");
}

Status CheckRemoteOutput(const ModelOptions& model, const FormatFlags& flags) {
  if (model.server.empty() || !flags.tokens) return {};
  return {StatusCode::kInvalidArgument, "--tokens does not work with --server, which sends text only; leave one out"};
}

std::vector<OutputFormat> ToFormats(const FormatFlags& flags) {
  std::vector<OutputFormat> formats;
  if (flags.txt) formats.push_back(OutputFormat::kText);
  if (flags.tokens) formats.push_back(OutputFormat::kTokens);
  if (flags.json) formats.push_back(OutputFormat::kJson);
  if (flags.srt) formats.push_back(OutputFormat::kSrt);
  if (flags.vtt) formats.push_back(OutputFormat::kVtt);
  if (formats.empty()) formats.push_back(OutputFormat::kText);
  return formats;
}

void AddRawOptions(CLI::App& command, RawOptions* options) {
  command.add_option("--format", options->format, "Input is raw samples without a header, of this type")
      ->check(CLI::IsMember({"u8", "s16le", "s16be", "s24le", "s32le", "f32le", "f64le", "mulaw", "alaw"}))
      ->type_name("TYPE");
  command.add_option("--rate", options->rate, "Sample rate of raw input in Hz")
      ->check(CLI::Range(1000, 768000))
      ->capture_default_str()
      ->type_name("HZ");
  command.add_option("--channels", options->channels, "Channels of raw input, interleaved; they are averaged")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->type_name("N");
}

std::optional<audio::RawFormat> ToRawFormat(const RawOptions& options) {
  if (options.format.empty()) return std::nullopt;
  const std::optional<audio::SampleFormat> format = audio::ParseSampleFormat(options.format);
  VOXRT_CHECK(format.has_value());  // the parser let only known names through
  return audio::RawFormat{.format = *format, .rate = options.rate, .channels = options.channels};
}

audio::ByteReader StandardInputReader(const std::atomic<bool>* stop) {
  constexpr int kPollMs = 100;
  return [stop, bytes = audio::DescriptorReader(STDIN_FILENO, InterruptFlag())](
             std::span<std::byte> buffer) -> Result<size_t> {
    while (!Interrupted() && !stop->load(std::memory_order_relaxed)) {
      pollfd descriptor = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (poll(&descriptor, 1, kPollMs) > 0) return bytes(buffer);
    }
    return Status(StatusCode::kCancelled, "stopped");
  };
}

void AddScreenOptions(CLI::App& command, ScreenFlags* flags) {
  CLI::Option* quiet = command.add_flag("-q,--quiet", flags->quiet, "Only results and errors");
  command.add_flag("-v,--verbose", flags->verbose, "More about what happens, on standard error")->excludes(quiet);
  command.add_option("--color", flags->color, "Colours on standard error")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str()
      ->type_name("WHEN");
}

ScreenOptions ToScreenOptions(const ScreenFlags& flags) {
  SetLogLevel(flags.verbose ? LogLevel::kDebug : flags.quiet ? LogLevel::kError : LogLevel::kWarning);
  return {.quiet = flags.quiet, .color = flags.color};
}

std::string Explain(const std::string& name, const Status& status) {
  return status.message().find(name) == std::string::npos ? name + ": " + status.message() : status.message();
}

std::string FindDemoModel() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto usable = [&error](const fs::path& path) { return fs::exists(path / "params.json", error); };
  if (const fs::path installed = program.parent_path() / "../share/voxrt/models/demo"; usable(installed)) {
    return installed.lexically_normal().string();
  }
  // build/PRESET/bin/voxrt: the source tree is three folders up.
  fs::path folder = program.parent_path();
  for (int level = 0; level < 4 && folder.has_relative_path(); ++level, folder = folder.parent_path()) {
    if (usable(folder / "models/demo")) return (folder / "models/demo").string();
  }
  return {};
}

Result<std::string> ResolveModel(const std::string& model, Screen& screen) {
  if (!model.empty()) return model;
  std::string demo = FindDemoModel();
  if (demo.empty()) {
    return Status(StatusCode::kNotFound,
                  "no --model given and no bundled demo checkpoint found beside the program; give --model PATH");
  }
  screen.Note(fmt::format("no --model given: using the demo checkpoint {} (for synthetic English speech only)", demo));
  return demo;
}

#ifdef VOXRT_HAVE_SERVE
namespace {
Result<std::shared_ptr<engine::Engine>> ConnectServer(const ModelOptions& options, Screen& screen) {
  const char* key = std::getenv("VOXRT_API_KEY");
  server::RemoteOptions remote{.url = options.server, .api_key = options.server_key, .model = options.model};
  if (remote.api_key.empty() && key != nullptr) remote.api_key = key;
  Result<std::shared_ptr<engine::Engine>> engine = server::ConnectRemote(remote);
  if (!engine.ok()) screen.Error(engine.status().message());
  return engine;
}
}  // namespace
#endif

Result<std::shared_ptr<engine::Engine>> LoadEngine(const ModelOptions& options, int max_sessions, Screen& screen) {
#ifdef VOXRT_HAVE_SERVE
  if (!options.server.empty()) return ConnectServer(options, screen);
#endif
  Result<std::string> model = ResolveModel(options.model, screen);
  if (!model.ok()) {
    screen.Error(model.status().message());
    return model.status();
  }
  engine::EngineOptions engine_options{.model_path = *model,
                                       .data_path = options.data_path,
                                       .backend = options.backend,
                                       .device = options.device,
                                       .threads = options.threads,
                                       .kv_type = options.kv_type,
                                       .head_scan = options.head_scan,
                                       .max_sessions = max_sessions,
                                       .progress = {}};
  // A server says ready once its GPU has recorded the batches that traffic begins with.
  constexpr int kMostWarmUp = 64;
  if (options.backend == "cuda" && max_sessions > 1)
    engine_options.warm_up_sessions = std::min(max_sessions, kMostWarmUp);
  engine_options.progress = [&screen](int64_t done_bytes, int64_t total_bytes) {
    if (!screen.StatusDue()) return;
    constexpr double kMb = 1e6;
    screen.SetStatus(fmt::format("loading {:.0f} of {:.0f} MB", static_cast<double>(done_bytes) / kMb,
                                 static_cast<double>(total_bytes) / kMb));
  };
  Result<std::shared_ptr<engine::Engine>> engine = engine::Engine::Create(engine_options);
  screen.ClearStatus();
  if (!engine.ok()) {
    screen.Error(engine.status().message());
    return engine;
  }
  const engine::EngineInfo info = (*engine)->info();
  Log(LogLevel::kInfo, "model {} ({}, {}, {} parameters) on {}: loaded in {:.2f} s", info.model_path, info.layout,
      info.formats, info.parameters, info.device, info.load_seconds);
  return engine;
}

int ModelExitCode(const Status& status) { return status.code() == StatusCode::kInvalidArgument ? kUsage : kModel; }

}  // namespace voxrt::app
