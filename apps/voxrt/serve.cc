// voxrt serve: flags to ServerOptions, model loading, measured admission; everything else is src/server.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "cli.h"
#include "options.h"
#include "server/capacity.h"
#include "server/http/credentials.h"
#include "server/protocol/events.h"
#include "server/server.h"
#include "server/upload_file.h"

namespace voxrt::app {
namespace {

constexpr int kMostSessionsCpu = 256;
constexpr int kMostSessionsGpu = 1024;
constexpr double kCalibrationSeconds = 2.0;

struct ServeOptions {
  ModelOptions model;
  server::ServerOptions server;
  std::string max_sessions = "auto";
  std::string api_key_file;
  std::optional<int> delay_ms;  // absent: the model's default
  double max_upload_mb = 25.0;
  double session_memory_mb = 128.0;
  double max_session_backlog_mb = 1024.0;
  double max_total_backlog_mb = 8192.0;
  bool no_page = false;
  ScreenFlags screen;
};

constexpr double kLongestSeconds = 366.0 * 24 * 3600;
constexpr double kMostMegabytes = 1e9;  // cast to bytes later

// A number from `low` to `high`; not-a-number is none.
CLI::Validator Within(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return !text.empty() && *end == '\0' && value >= low && value <= high
                   ? std::string()
                   : fmt::format("found {}, expected a number from {:g} to {:.0f}", text, low, high);
      },
      "");
}

int64_t Megabytes(double value) { return static_cast<int64_t>(value * 1048576.0); }

void AddAddressOptions(CLI::App& command, ServeOptions* o) {
  server::ServerOptions& s = o->server;
  command.add_option("--host", s.host, "Address to listen on; 0.0.0.0 = all")->capture_default_str();
  command.add_option("--port", s.port, "Port for HTTP and WebSocket; -1 = closed, 0 = any free one")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command.add_option("--tls-port", s.tls_port, "Port for HTTPS and WSS; -1 = closed")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command.add_option("--tls-cert", s.tls_cert, "Certificate chain, PEM; read again on SIGHUP");
  command.add_option("--tls-key", s.tls_key, "Private key, PEM");
  command.add_option("--api-key", s.api_keys,
                     "Key that clients must send (repeatable); also from VOXRT_API_KEY, comma-separated; none = open");
  command.add_option("--api-key-file", o->api_key_file, "File with one key a line");
  command
      .add_option("--allowed-origins", s.allowed_origins,
                  "Web origins that may connect besides the server's own; * = all")
      ->delimiter(',');
  command.add_option("--served-model-name", s.model_names, "Names clients may ask for; the first is the default")
      ->delimiter(',');
  command.add_flag("--accept-any-model", s.accept_any_model, "Serve whatever model name a client asks for");
  command.add_flag("--no-page", o->no_page, "Do not serve the pages / and /status");
}

void AddLimitOptions(CLI::App& command, ServeOptions* o) {
  server::ServerOptions& s = o->server;
  command.add_option("--max-sessions", o->max_sessions, "Sessions at the same time; auto = measured at start")
      ->capture_default_str();
  command.add_option("--max-connections", s.max_connections, "Open connections")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      .add_option("--max-connections-per-address", s.max_connections_per_address, "Of one client address; 0 = no limit")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command.add_option("--upload-threads", s.upload_threads, "Uploads transcribed at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--io-threads", s.io_threads, "Threads for sockets, decoding and resampling")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--max-upload-mb", o->max_upload_mb, "Largest upload")
      ->check(Within(0.001, kMostMegabytes))
      ->capture_default_str();
  command
      .add_option("--session-memory-mb", o->session_memory_mb,
                  "Waiting audio of a session kept in memory, the rest goes to --temp-dir")
      ->check(Within(0.0, kMostMegabytes))
      ->capture_default_str();
  command
      .add_option("--max-session-backlog-mb", o->max_session_backlog_mb,
                  "Waiting audio of a session before reading stops")
      ->check(Within(0.001, kMostMegabytes))
      ->capture_default_str();
  command.add_option("--max-total-backlog-mb", o->max_total_backlog_mb, "Waiting audio of all sessions")
      ->check(Within(0.001, kMostMegabytes))
      ->capture_default_str();
  command.add_option("--temp-dir", s.temp_dir, "For uploads and waiting audio (unlinked files)")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  command.add_option("--max-message-bytes", s.max_message_bytes, "Largest WebSocket message")
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 40))
      ->capture_default_str();
  command.add_option("--max-outbound-bytes", s.max_outbound_bytes, "Text a slow reader may have waiting")
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 40))
      ->capture_default_str();
}

void AddTimeOptions(CLI::App& command, ServeOptions* o) {
  server::ServerOptions& s = o->server;
  const auto seconds = [&command](const char* name, double* value, const char* help) {
    command.add_option(name, *value, help)->check(Within(0.0, kLongestSeconds))->capture_default_str();
  };
  const auto positive = [&command](const char* name, double* value, const char* help) {
    command.add_option(name, *value, help)->check(Within(0.1, kLongestSeconds))->capture_default_str();
  };
  seconds("--idle-timeout", &s.idle_timeout_s, "Seconds without a message from a realtime client; 0 = off");
  seconds("--max-session-seconds", &s.max_session_s, "Longest realtime session; 0 = no limit");
  seconds("--max-lag", &s.max_lag_s, "Seconds of lag, for as long again, that end a paced session; 0 = off");
  positive("--slow-reader-timeout", &s.slow_reader_s, "Seconds with too much unread text");
  positive("--push-back-timeout", &s.push_back_s, "Seconds during which no more audio can be taken");
  positive("--peer-timeout", &s.peer_timeout_s, "Seconds without any byte; pinged at half of it");
  positive("--handshake-timeout", &s.handshake_timeout_s, "Seconds for TLS, request header and WebSocket close");
  positive("--keep-alive", &s.keep_alive_s, "Seconds between two requests of a connection");
  seconds("--drain-timeout", &s.drain_timeout_s, "Seconds that running utterances may take after SIGTERM");
  positive("--stall-timeout", &s.stall_s, "Seconds without progress that turn /health red");
  command.add_option("--delay-ms", o->delay_ms,
                     "Default delay of the text: a multiple of 80 from 80 to 2400; default: the model's own");
  command.add_flag("--vllm-empty-deltas", s.vllm_empty_deltas, "vLLM dialect: one delta per step, also empty ones");
  command.add_option("--session-warnings", s.openai_warnings, "session.warning events in the OpenAI dialect")
      ->capture_default_str();
  command.add_flag("--all-session-warnings", s.other_warnings, "session.warning events in the other dialects too");
  command.add_flag("--ready-red-when-full", s.ready_red_when_full, "/ready answers 503 while all places are taken");
  command.add_flag("--log-text", s.log_text, "Log what users say (off: nothing of it is logged)");
}

Status ReadKeys(ServeOptions* options) {
  std::vector<std::string>& keys = options->server.api_keys;
  if (const char* value = std::getenv("VOXRT_API_KEY")) {
    for (std::string& key : server::SplitList(value)) keys.push_back(std::move(key));
    if (keys.empty() && *value != '\0') {
      return {StatusCode::kInvalidArgument, "VOXRT_API_KEY holds no key; unset it for an open server"};
    }
  }
  if (!options->api_key_file.empty()) {
    std::ifstream file(options->api_key_file);
    if (!file) return {StatusCode::kInvalidArgument, "cannot read --api-key-file " + options->api_key_file};
    std::string line;
    size_t count = 0;
    while (std::getline(file, line)) {
      for (std::string& key : server::SplitList(line)) {
        keys.push_back(std::move(key));
        ++count;
      }
    }
    if (count == 0) return {StatusCode::kInvalidArgument, "--api-key-file " + options->api_key_file + " holds no key"};
  }
  for (const std::string& key : keys) {
    if (key.empty()) return {StatusCode::kInvalidArgument, "an API key is empty"};
  }
  return {};
}

// The number given, or nullopt for "auto".
Result<std::optional<int>> ParseMaxSessions(const std::string& text) {
  if (text == "auto") return std::optional<int>();
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 1 || value > 4096) {
    return Status(StatusCode::kInvalidArgument, "--max-sessions must be auto or 1 to 4096, found '" + text + "'");
  }
  return std::optional<int>(static_cast<int>(value));
}

Status ApplyOptions(ServeOptions* options) {
  server::ServerOptions& s = options->server;
  VOXRT_RETURN_IF_ERROR(ReadKeys(options));
  if (options->delay_ms && !server::ValidDelayMs(*options->delay_ms))
    return {StatusCode::kInvalidArgument, fmt::format("--delay-ms must be {}", server::kDelayRule)};
  s.max_upload_bytes = Megabytes(options->max_upload_mb);
  s.session_memory_bytes = Megabytes(options->session_memory_mb);
  s.max_session_backlog_bytes = Megabytes(options->max_session_backlog_mb);
  s.max_total_backlog_bytes = Megabytes(options->max_total_backlog_mb);
  s.page = !options->no_page;
  return {};
}

std::string ModelName(const std::string& path) {
  std::filesystem::path clean(path);
  if (!clean.has_filename()) clean = clean.parent_path();
  const std::string name = std::filesystem::is_directory(clean) ? clean.filename().string() : clean.stem().string();
  return name.empty() || name == "." ? "voxrt" : name;
}

Status ChooseSessions(engine::Engine& engine, std::optional<int> wanted, server::ServerOptions* options) {
  if (wanted) {
    options->max_sessions = *wanted;
    return {};
  }
  VOXRT_ASSIGN_OR_RETURN(const server::Capacity capacity,
                         server::MeasureCapacity(engine, server::AvailableMemoryBytes(), kCalibrationSeconds));
  options->max_sessions = capacity.sessions;
  options->admit_by_load = true;
  Log(LogLevel::kInfo,
      "server.capacity sessions={} by_time={} by_memory={} by_slots={} step_1_ms={:.2f} step_{}_ms={:.2f} rounds={}",
      capacity.sessions, capacity.by_time, capacity.by_memory, capacity.by_slots, capacity.step_one_s * 1e3,
      capacity.probe, capacity.step_many_s * 1e3, capacity.rounds);
  if (capacity.step_one_s > 0.08) {
    Log(LogLevel::kWarning,
        "server.too_slow step_ms={:.0f}: one session takes more than its 80 ms a step here; live text will lag",
        capacity.step_one_s * 1e3);
  }
  return {};
}

int Serve(ServeOptions options) {
  Screen screen(ToScreenOptions(options.screen));
  SetLogLevel(options.screen.quiet ? LogLevel::kWarning : options.screen.verbose ? LogLevel::kDebug : LogLevel::kInfo);
  const auto usage = [&screen](const Status& status) {
    screen.Error(status.message());
    return static_cast<int>(kUsage);
  };
  if (const Status status = ApplyOptions(&options); !status.ok()) return usage(status);
  const Result<std::optional<int>> wanted = ParseMaxSessions(options.max_sessions);
  if (!wanted.ok()) return usage(wanted.status());
  if (const Status status = server::CheckTempDir(options.server.temp_dir); !status.ok()) return usage(status);
  if (const Status status = server::Server::CheckAddresses(options.server); !status.ok()) return usage(status);
  // Spare slots: a session that just ended gives its slot back within a step, the next one must not wait for it.
  const int most = options.model.backend == "cuda" ? kMostSessionsGpu : kMostSessionsCpu;
  const int slots = wanted.value() ? *wanted.value() + std::max(4, *wanted.value() / 8) : most;
  Result<std::string> path = ResolveModel(options.model.model, screen);
  if (!path.ok()) {
    screen.Error(path.status().message());
    return kModel;
  }
  options.model.model = path.value();
  Result<std::shared_ptr<engine::Engine>> engine = LoadEngine(options.model, slots, screen);
  if (!engine.ok()) return ModelExitCode(engine.status());
  options.server.default_delay_ms = options.delay_ms.value_or((*engine)->info().default_delay_ms);
  if (options.server.model_names.empty()) options.server.model_names = {ModelName(path.value())};
  if (const Status status = ChooseSessions(**engine, wanted.value(), &options.server); !status.ok()) {
    screen.Error(status.message());
    return kModel;
  }
  Result<std::unique_ptr<server::Server>> server = server::Server::Create(options.server, *engine);
  if (!server.ok()) return usage(server.status());
  Log(LogLevel::kInfo, "server.ready model={} backend={} host={} port={} tls_port={} max_sessions={} keys={}",
      options.server.model_names.front(), options.model.backend, options.server.host, (*server)->port(),
      (*server)->tls_port(), options.server.max_sessions, options.server.api_keys.size());
  (*server)->Run(/*handle_signals=*/true);
  return (*server)->engine_lost() ? kModel : kOk;
}

}  // namespace

void AddServe(Cli& cli) {
  CLI::App* command =
      cli.app.add_subcommand("serve", "Live captions and transcriptions for many clients (docs/server.md)");
  auto options = std::make_shared<ServeOptions>();
  AddModelOptions(*command, &options->model);
  AddAddressOptions(*command, options.get());
  AddLimitOptions(*command, options.get());
  AddTimeOptions(*command, options.get());
  AddScreenOptions(*command, &options->screen);
  command->callback([&cli, options] { cli.body = [options] { return Serve(*options); }; });
}

}  // namespace voxrt::app
