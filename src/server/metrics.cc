#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <vector>

namespace voxrt::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;
using Buckets = Histogram::BucketBoundaries;

const Buckets kLagBuckets = {0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.2, 0.3, 0.5, 1, 2, 5, 10};
const Buckets kStepBuckets(engine::kStepSecondsBounds.begin(), engine::kStepSecondsBounds.end());
const Buckets kBatchBuckets(engine::kBatchBounds.begin(), engine::kBatchBounds.end());
const Buckets kFirstTextBuckets = {0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30};
const Buckets kConnectionBuckets = {0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1800};

// Per place of a histogram, since it was read last.
template <size_t kCount>
std::vector<double> Increments(const std::array<int64_t, kCount>& now, const std::array<int64_t, kCount>& last) {
  std::vector<double> counts;
  for (size_t i = 0; i < kCount; ++i) counts.push_back(static_cast<double>(now[i] - last[i]));
  return counts;
}

}  // namespace

int64_t ResidentBytes() {
  long long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld %lld", &pages, &resident) != 2) resident = 0;
  std::fclose(file);
  return static_cast<int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

double ProcessCpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0.0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Metrics::State {
  explicit State(const std::string& model) : labels{{"model_name", model}, {"engine", "0"}} {}

  Gauge& AddGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& AddCounter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& AddHistogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
  Family<Counter>& AddFamily(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  void Increment(Family<Counter>& family, const Labels& more) {
    Labels all = labels;
    all.insert(more.begin(), more.end());
    family.Add(all).Increment();  // Add finds an existing one
  }

  const Labels labels;
  prometheus::Registry registry;

  Gauge& running = AddGauge("vllm:num_requests_running", "Sessions and uploads being transcribed");
  Gauge& waiting = AddGauge("vllm:num_requests_waiting", "Uploads waiting for a place");
  Gauge& cache = AddGauge("vllm:kv_cache_usage_perc", "Taken share of the session places");
  Counter& generated = AddCounter("vllm:generation_tokens_total", "Generated tokens, blanks included");
  Counter& prompt = AddCounter("vllm:prompt_tokens_total", "Prompt tokens");
  Histogram& first_text = AddHistogram("vllm:time_to_first_token_seconds",
                                       "From the first audio of an utterance to its first text", kFirstTextBuckets);
  Histogram& interval =
      AddHistogram("vllm:inter_token_latency_seconds", "Between two tokens of a session", kLagBuckets);
  Family<Counter>& success = AddFamily("vllm:request_success_total", "Finished utterances and uploads");
  Histogram& queue_time =
      AddHistogram("vllm:request_queue_time_seconds", "Time uploads waited for a place", kFirstTextBuckets);
  Gauge& sockets = AddGauge("vllm:websocket_connections_active", "Open realtime connections");
  Counter& sockets_total = AddCounter("vllm:websocket_connections_total", "Realtime connections so far");
  Histogram& socket_duration =
      AddHistogram("vllm:websocket_connection_duration_seconds", "Length of realtime connections", kConnectionBuckets);

  Gauge& free_places = AddGauge("voxrt_session_places_free", "Places for further sessions");
  Family<Counter>& admitted = AddFamily("voxrt_sessions_admitted_total", "Sessions by dialect");
  Family<Counter>& refused = AddFamily("voxrt_refusals_total", "Refused connections and requests by reason");
  Counter& audio_received = AddCounter("voxrt_audio_received_seconds_total", "Audio received");
  Counter& audio_done = AddCounter("voxrt_audio_transcribed_seconds_total", "Audio of finished utterances and uploads");
  Histogram& lag =
      AddHistogram("voxrt_lag_seconds", "From the arrival of the audio a token needs to the token", kLagBuckets);
  Gauge& max_lag = AddGauge("voxrt_lag_max_seconds", "Largest lag among the sessions now");
  Counter& text_tokens = AddCounter("voxrt_text_tokens_total", "Generated tokens with text");
  Histogram& step_time = AddHistogram("voxrt_step_seconds", "Time of a live step of the device", kStepBuckets);
  Histogram& batch = AddHistogram("voxrt_batch_sessions", "Sessions in a live step", kBatchBuckets);
  Counter& live_ticks = AddCounter("voxrt_live_ticks_total", "Session ticks done one at a time");
  Counter& live_steps = AddCounter("voxrt_live_steps_total", "Live steps of the device");
  Counter& live_seconds = AddCounter("voxrt_live_seconds_total", "Device time of live steps");
  Counter& bulk_ticks = AddCounter("voxrt_bulk_ticks_total", "Session ticks done in long calls");
  Gauge& inbound = AddGauge("voxrt_buffered_audio_bytes", "Received audio not yet taken by the engine");
  Gauge& outbound = AddGauge("voxrt_buffered_text_bytes", "Text not yet taken by clients");
  Family<Counter>& disconnects = AddFamily("voxrt_disconnects_total", "Ended realtime connections by close code");
  Family<Counter>& errors = AddFamily("voxrt_errors_total", "Errors sent by dialect and code");
  Family<Counter>& requests = AddFamily("voxrt_http_responses_total", "HTTP answers by status");
  Gauge& connections = AddGauge("voxrt_connections", "Open TCP connections");
  Gauge& resident = AddGauge("voxrt_resident_bytes", "Resident memory");
  Gauge& device_bytes = AddGauge("voxrt_session_state_bytes", "Device memory of all sessions' states");
  Gauge& cpu = AddGauge("voxrt_cpu_seconds", "CPU time of the process");

  std::mutex mutex;  // of the last snapshot
  engine::EngineStats last;
};

Metrics::Metrics(const std::string& model_name) : state_(std::make_unique<State>(model_name)) {}
Metrics::~Metrics() = default;

void Metrics::OnAudioReceived(double seconds) { state_->audio_received.Increment(seconds); }
void Metrics::OnAudioTranscribed(double seconds) {
  state_->audio_done.Increment(seconds);
  state_->Increment(state_->success, {{"finished_reason", "stop"}});
}
void Metrics::OnToken(bool has_text) {
  state_->generated.Increment();
  if (has_text) state_->text_tokens.Increment();
}
void Metrics::OnLag(double seconds) { state_->lag.Observe(seconds); }
void Metrics::OnFirstText(double seconds) { state_->first_text.Observe(seconds); }
void Metrics::OnPrompt(int64_t tokens) { state_->prompt.Increment(static_cast<double>(tokens)); }
void Metrics::OnTokenInterval(double seconds) { state_->interval.Observe(seconds); }
void Metrics::OnSessionAdmitted(const char* dialect) { state_->Increment(state_->admitted, {{"dialect", dialect}}); }
void Metrics::OnRefused(const char* reason) { state_->Increment(state_->refused, {{"reason", reason}}); }
void Metrics::OnWebSocketOpened() {
  state_->sockets.Increment();
  state_->sockets_total.Increment();
}
void Metrics::OnWebSocketClosed(double seconds, int close_code) {
  state_->sockets.Decrement();
  state_->socket_duration.Observe(seconds);
  state_->Increment(state_->disconnects, {{"code", std::to_string(close_code)}});
}
void Metrics::OnError(const std::string& dialect, const std::string& code) {
  state_->Increment(state_->errors, {{"dialect", dialect}, {"code", code}});
}
void Metrics::OnRequest(int status) { state_->Increment(state_->requests, {{"status", std::to_string(status)}}); }
void Metrics::OnUpload(bool success, double queue_seconds) {
  state_->queue_time.Observe(queue_seconds);
  if (!success) state_->Increment(state_->success, {{"finished_reason", "abort"}});
}
void Metrics::OnOutboundBytes(int64_t change) { state_->outbound.Increment(static_cast<double>(change)); }

std::string Metrics::Text(const MetricsSnapshot& snapshot) {
  State& s = *state_;
  s.running.Set(snapshot.sessions);
  s.waiting.Set(snapshot.uploads_waiting);
  s.cache.Set(snapshot.places == 0 ? 0.0 : static_cast<double>(snapshot.sessions) / snapshot.places);
  s.free_places.Set(snapshot.places - snapshot.sessions);
  s.max_lag.Set(snapshot.max_lag_s);
  s.inbound.Set(static_cast<double>(snapshot.backlog_bytes));
  s.connections.Set(snapshot.connections);
  s.resident.Set(static_cast<double>(ResidentBytes()));
  s.device_bytes.Set(static_cast<double>(snapshot.info.session_bytes_now));
  s.cpu.Set(ProcessCpuSeconds());
  {
    const std::lock_guard lock(s.mutex);
    const auto steps = static_cast<double>(snapshot.engine.live_batches - s.last.live_batches);
    const auto ticks = static_cast<double>(snapshot.engine.live_ticks - s.last.live_ticks);
    const double seconds = snapshot.engine.live_seconds - s.last.live_seconds;
    // A snapshot that another request overtook adds nothing: the later one has counted it.
    if (steps >= 0) {
      s.step_time.ObserveMultiple(Increments(snapshot.engine.steps_by_seconds, s.last.steps_by_seconds), seconds);
      s.batch.ObserveMultiple(Increments(snapshot.engine.steps_by_batch, s.last.steps_by_batch), ticks);
      s.live_steps.Increment(steps);
      s.live_ticks.Increment(ticks);
      s.live_seconds.Increment(seconds);
      const auto bulk = static_cast<double>(snapshot.engine.bulk_ticks - s.last.bulk_ticks);
      if (bulk > 0) s.bulk_ticks.Increment(bulk);
      s.last = snapshot.engine;
    }
  }
  return prometheus::TextSerializer().Serialize(s.registry.Collect());
}

}  // namespace voxrt::server
