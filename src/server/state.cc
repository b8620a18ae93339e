#include "server/state.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <chrono>

#include "base/log.h"
#include "server/http/http_error.h"

namespace voxrt::server {
namespace {

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

ServerState::ServerState(ServerOptions given, std::shared_ptr<engine::Engine> shared_engine)
    : options(std::move(given)),
      engine(std::move(shared_engine)),
      keys(options.api_keys),
      admission(std::make_shared<Admission>(options.max_sessions, options.admit_by_load)),
      backlog_budget(std::make_shared<BacklogBudget>()),
      created_unix_s(UnixSeconds()),
      metrics(options.model_names.front()) {
  backlog_budget->limit = options.max_total_backlog_bytes;
}

std::string ServerState::NewId(const char* prefix) {
  std::array<uint8_t, 12> bytes{};
  VOXRT_CHECK(getrandom(bytes.data(), bytes.size(), 0) ==
              static_cast<ssize_t>(bytes.size()));  // never short at this size
  std::string id = std::string(prefix) + "-";
  for (const uint8_t byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

SessionConfig ServerState::NewSessionConfig() {
  SessionConfig config;
  config.session_id = NewId("sess");
  config.created_unix_s = UnixSeconds();
  config.models = options.model_names;
  config.accept_any_model = options.accept_any_model;
  config.default_delay_ms = options.default_delay_ms;
  if (options.max_session_s > 0.0)
    config.expires_at_unix_s = config.created_unix_s + static_cast<int64_t>(options.max_session_s);
  config.vllm_empty_deltas = options.vllm_empty_deltas;
  config.openai_warnings = options.openai_warnings;
  config.other_warnings = options.other_warnings;
  config.max_unbound_bytes = options.session_memory_bytes;
  return config;
}

void ServerState::Register(Drainable* connection) {
  const std::lock_guard lock(mutex_);
  registered_.insert(connection);
}

void ServerState::Unregister(Drainable* connection) {
  const std::lock_guard lock(mutex_);
  registered_.erase(connection);
}

void ServerState::ForEach(const std::function<void(Drainable&)>& visit) {
  const std::lock_guard lock(mutex_);
  for (Drainable* connection : registered_) visit(*connection);
}

int ServerState::registered() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(registered_.size());
}

void ServerState::ReportMax(std::atomic<int64_t>* cell, double seconds) {
  const auto value = static_cast<int64_t>(seconds * 1000.0);
  int64_t seen = cell->load();
  while (value > seen && !cell->compare_exchange_weak(seen, value)) {
  }
}

void ServerState::RollReports() {
  max_lag_shown_ms_ = max_lag_ms_.exchange(0);
  stalled_shown_ms_ = stalled_ms_.exchange(0);
  const double paced_lag_s = static_cast<double>(paced_lag_ms_.exchange(0)) / 1000.0;
  if (!admission->Observe(paced_lag_s)) return;
  if (admission->limited()) {
    Log(LogLevel::kWarning, "server.behind lag_s={:.2f} sessions={}: nobody new until it has caught up", paced_lag_s,
        admission->taken());
  } else {
    Log(LogLevel::kInfo, "server.caught_up sessions={}", admission->taken());
  }
}

std::string ServerState::HealthProblem() const {
  const Status health = engine->health();
  if (!health.ok()) return WithoutFlags(health.message());
  if (stalled_shown_ms_ > static_cast<int64_t>(options.stall_s * 1000.0)) {
    return fmt::format("the engine has made no progress for {} s", stalled_shown_ms_ / 1000);
  }
  return {};
}

std::string ServerState::ReadyProblem() const {
  if (draining) return "draining";
  std::string health = HealthProblem();
  if (!health.empty()) return health;
  if (options.ready_red_when_full && admission->full()) return "full";
  return {};
}

MetricsSnapshot ServerState::Snapshot() const {
  return {.engine = engine->stats(),
          .info = engine->info(),
          .sessions = admission->taken(),
          .places = admission->limit(),
          .uploads_waiting = uploads_waiting,
          .connections = connections,
          .backlog_bytes = backlog_budget->used,
          .max_lag_s = max_lag_s()};
}

}  // namespace voxrt::server
