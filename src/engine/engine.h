// Engine: one loaded model on one device, immutable and shared. Sessions are made from it; one scheduler thread per
// engine is the only one that touches the device.
//
//   auto engine = Engine::Create({.model_path = "models/demo", .backend = "cpu"});
//   auto session = (*engine)->NewSession({.delay_ms = 480});
//   session->Feed(samples); session->Finish();
//   while (session->Wait(&events) ...) for (const Event& e : events) std::cout << e.text;
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "quant/dtype.h"
#include "text/tekken.h"
#include "weights/model_config.h"

namespace voxrt::engine {

struct EngineOptions {
  std::string model_path;
  std::string data_path;
  std::string backend = "cpu";
  int device = 0;
  int threads = 0;                  // 0 = one per core
  std::string kv_type;              // "fp32", "bf16", "int8"; empty = the backend's default
  bool head_scan = false;           // the best token of a float head by an 8-bit scan: same tokens (DeviceOptions)
  int max_sessions = 64;            // slots; admission beyond it is refused
  int64_t max_encoder_ticks = 128;  // most ticks per encoder call for long queues (4 rows each)
  int warm_up_sessions = 0;         // at load, one live tick of every batch up to this size: backends that record and
                                    // load kernels at first use do it then, not in traffic
  int speculation_rows = 0;         // decoder rows per pass for long queues; 1 = off, 0 = what suits the backend
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct EngineInfo {
  std::string backend;
  std::string device;  // description
  std::string model_path;
  std::string layout;   // "mistral", "huggingface", "artifact"
  std::string formats;  // what the weights are stored as, e.g. "bf16"
  std::string kv_type;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t session_bytes_now = 0;      // all sessions together
  int64_t session_bytes_at_most = 0;  // of one session, rings full
  int max_sessions = 0;
  int sessions = 0;
  double load_seconds = 0.0;
  int default_delay_ms = 480;  // of the artifact or of tekken.json
  int speculation_rows = 1;
};

// Upper bounds of the histograms below; one place more counts what is beyond.
inline constexpr std::array<double, 13> kStepSecondsBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04,
                                                              0.06,  0.08,   0.12,  0.2,  0.5,  1.0};
inline constexpr std::array<double, 10> kBatchBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

// What the scheduler did so far (for bench and metrics).
struct EngineStats {
  int64_t live_ticks = 0;  // session ticks done one at a time
  int64_t live_batches = 0;
  int64_t bulk_ticks = 0;     // session ticks whose encoder ran in a long call
  int64_t decode_passes = 0;  // decoder calls outside live ticks
  int64_t decode_rows = 0;    // rows in them
  int64_t decode_tokens = 0;  // tokens accepted from them
  double encode_seconds = 0.0;
  double decode_seconds = 0.0;
  double live_seconds = 0.0;
  std::array<int64_t, kStepSecondsBounds.size() + 1> steps_by_seconds{};  // live steps
  std::array<int64_t, kBatchBounds.size() + 1> steps_by_batch{};
};

class Engine {
 public:
  static Result<std::shared_ptr<Engine>> Create(const EngineOptions& options);
  virtual ~Engine() = default;

  // kResourceExhausted when all slots are taken. A session keeps the engine alive.
  virtual Result<std::unique_ptr<Session>> NewSession(const SessionOptions& options) = 0;

  virtual const weights::ModelConfig& config() const = 0;
  virtual const text::Tekken& tekken() const = 0;
  virtual EngineInfo info() const = 0;
  virtual EngineStats stats() const = 0;
  // Not ok once the device or the model file is lost: all sessions have ended.
  virtual Status health() const = 0;
};

}  // namespace voxrt::engine
