// What the server counts, in Prometheus' text form: vLLM's names, so that its dashboards work, and our own with the
// prefix voxrt_.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/stream/stream_driver.h"

namespace voxrt::server {

// Values read when the text is made.
struct MetricsSnapshot {
  engine::EngineStats engine;
  engine::EngineInfo info;
  int sessions = 0;
  int places = 0;
  int uploads_waiting = 0;
  int connections = 0;
  int64_t backlog_bytes = 0;
  double max_lag_s = 0.0;
};

class Metrics : public StreamObserver {
 public:
  explicit Metrics(const std::string& model_name);
  ~Metrics() override;

  void OnAudioReceived(double seconds) override;
  void OnAudioTranscribed(double seconds) override;
  void OnToken(bool has_text) override;
  void OnLag(double seconds) override;
  void OnFirstText(double seconds) override;
  void OnPrompt(int64_t tokens) override;

  void OnTokenInterval(double seconds);
  void OnSessionAdmitted(const char* dialect);
  void OnRefused(const char* reason);
  void OnWebSocketOpened();
  void OnWebSocketClosed(double seconds, int close_code);
  void OnError(const std::string& dialect, const std::string& code);
  void OnRequest(int status);
  void OnUpload(bool success, double queue_seconds);
  void OnOutboundBytes(int64_t change);

  // Exposition format; also returned as JSON for the status page.
  std::string Text(const MetricsSnapshot& snapshot);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Resident memory of this process in bytes.
int64_t ResidentBytes();
// CPU seconds of this process.
double ProcessCpuSeconds();

}  // namespace voxrt::server
