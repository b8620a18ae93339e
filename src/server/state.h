// ServerState: what all connections share. Thread-safe members only; no sockets here.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "engine/engine.h"
#include "server/admission.h"
#include "server/http/credentials.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/protocol/events.h"
#include "server/stream/backlog.h"

namespace voxrt::server {

// A connection that a drain has to tell: called from any thread, must post.
class Drainable {
 public:
  virtual ~Drainable() = default;
  virtual void Drain() = 0;   // finish what was begun, then close
  virtual void EndNow() = 0;  // the time is over: what was received gets its final text, then close
  virtual void Abort() = 0;   // the text did not come in time either: an error, then close
};

class ServerState {
 public:
  ServerState(ServerOptions options, std::shared_ptr<engine::Engine> engine);

  const ServerOptions options;
  const std::shared_ptr<engine::Engine> engine;
  const KeyRing keys;
  const std::shared_ptr<Admission> admission;
  const std::shared_ptr<BacklogBudget> backlog_budget;
  const int64_t created_unix_s;
  Metrics metrics;
  std::atomic<bool> draining{false};
  std::atomic<int> connections{0};
  std::atomic<int> uploads_waiting{0};
  std::atomic<int> cut{0};  // sessions and uploads that a drain ended before their clients did

  // Settings of a new realtime session, with an id of its own.
  SessionConfig NewSessionConfig();
  // "req-<hex>" and the like; unguessable.
  std::string NewId(const char* prefix);

  void Register(Drainable* connection);
  void Unregister(Drainable* connection);
  void ForEach(const std::function<void(Drainable&)>& visit);
  int registered() const;

  // Sessions report once a second how far they are behind and whether the engine moves.
  void ReportLag(double seconds, bool paced) {
    ReportMax(&max_lag_ms_, seconds);
    if (paced) ReportMax(&paced_lag_ms_, seconds);
  }
  void ReportStalled(double seconds) { ReportMax(&stalled_ms_, seconds); }
  // Once a second: what was reported since; decides whether more sessions are taken on.
  void RollReports();
  double max_lag_s() const { return max_lag_shown_ms_ / 1000.0; }

  // Empty when healthy, else why not.
  std::string HealthProblem() const;
  // Empty when new sessions are welcome.
  std::string ReadyProblem() const;
  MetricsSnapshot Snapshot() const;

 private:
  static void ReportMax(std::atomic<int64_t>* cell, double seconds);

  mutable std::mutex mutex_;
  std::set<Drainable*> registered_;
  std::atomic<int64_t> max_lag_ms_{0}, paced_lag_ms_{0}, stalled_ms_{0};
  std::atomic<int64_t> max_lag_shown_ms_{0}, stalled_shown_ms_{0};
};

}  // namespace voxrt::server
