#include "engine/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

#include "backend/registry.h"
#include "base/log.h"
#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "engine/session_core.h"
#include "weights/checkpoint.h"

namespace voxrt::engine {
namespace {

constexpr int kPrefixSlots = 2;

Result<quant::DType> ParseKvType(const std::string& name, quant::DType default_type) {
  if (name.empty()) return default_type;
  if (name == "fp32") return quant::DType::kF32;
  if (name == "bf16") return quant::DType::kBF16;
  if (name == "int8") return quant::DType::kI8;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("unknown cache type \"{}\"; choose fp32, bf16 or int8", name));
}

const char* KvTypeName(quant::DType dtype) {
  return dtype == quant::DType::kF32 ? "fp32" : dtype == quant::DType::kBF16 ? "bf16" : "int8";
}

Status CheckOptions(const EngineOptions& options) {
  if (options.max_sessions < 1 || options.max_sessions > 4096) {
    return {StatusCode::kInvalidArgument, fmt::format("max_sessions is {}; choose 1 to 4096", options.max_sessions)};
  }
  if (options.speculation_rows < 0 || options.speculation_rows > 64) {
    return {StatusCode::kInvalidArgument,
            fmt::format("speculation_rows is {}; choose 1 (off) to 64, or 0 (what suits the backend)",
                        options.speculation_rows)};
  }
  if (options.max_encoder_ticks < 1 || options.max_encoder_ticks > 4096) {
    return {StatusCode::kInvalidArgument,
            fmt::format("max_encoder_ticks is {}; choose 1 to 4096", options.max_encoder_ticks)};
  }
  if (options.warm_up_sessions < 0 || options.warm_up_sessions > options.max_sessions) {
    return {StatusCode::kInvalidArgument, fmt::format("warm_up_sessions is {}; choose 0 (none) to max_sessions ({})",
                                                      options.warm_up_sessions, options.max_sessions)};
  }
  if (options.threads < 0 || options.threads > 1024) {
    return {StatusCode::kInvalidArgument,
            fmt::format("threads is {}; choose 0 (one per core) to 1024", options.threads)};
  }
  return {};
}

// Delay in tokens, or why not: naming the two neighbours of a value in between.
Result<int> DelayTokens(int delay_ms) {
  constexpr int kMin = model::kMinDelayTokens * model::kTickMs;
  constexpr int kMax = model::kMaxDelayTokens * model::kTickMs;
  if (delay_ms < kMin || delay_ms > kMax) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("delay of {} ms is out of range; choose a multiple of 80 from {} to {}", delay_ms, kMin, kMax));
  }
  if (delay_ms % model::kTickMs != 0) {
    const int below = delay_ms / model::kTickMs * model::kTickMs;
    return Status(StatusCode::kInvalidArgument, fmt::format("delay of {} ms is not a multiple of 80; choose {} or {}",
                                                            delay_ms, below, below + model::kTickMs));
  }
  return delay_ms / model::kTickMs;
}

class EngineImpl;

class SessionImpl : public Session {
 public:
  SessionImpl(std::shared_ptr<EngineImpl> engine, Scheduler& scheduler, std::shared_ptr<SessionCore> core)
      : engine_(std::move(engine)), scheduler_(scheduler), core_(std::move(core)) {}
  ~SessionImpl() override { scheduler_.Remove(*core_); }

  Result<size_t> Feed(std::span<const float> samples) override { return core_->Feed(samples); }
  Status FeedAll(std::span<const float> samples) override { return core_->FeedAll(samples); }
  Status Flush() override { return core_->Flush(); }
  Status Finish() override { return core_->Finish(); }
  void Reset() override { core_->Reset(); }
  bool Poll(std::vector<Event>* events) override { return core_->Poll(events); }
  bool Wait(std::vector<Event>* events, std::chrono::milliseconds timeout) override {
    return core_->Wait(events, timeout);
  }
  void SetListener(std::function<void()> listener) override { core_->SetListener(std::move(listener)); }
  SessionStats stats() const override { return core_->stats(); }

 private:
  std::shared_ptr<EngineImpl> engine_;  // keeps device, weights and scheduler alive
  Scheduler& scheduler_;
  std::shared_ptr<SessionCore> core_;
};

class EngineImpl : public Engine, public std::enable_shared_from_this<EngineImpl> {
 public:
  Status Load(const EngineOptions& options);

  Result<std::unique_ptr<Session>> NewSession(const SessionOptions& options) override;
  const weights::ModelConfig& config() const override { return checkpoint_->config(); }
  const text::Tekken& tekken() const override { return *tekken_; }
  EngineInfo info() const override;
  EngineStats stats() const override { return scheduler_->stats(); }
  Status health() const override { return scheduler_->health(); }

 private:
  Status CheckShape() const;
  Status CheckHeadIsFloat() const;

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  std::optional<text::Tekken> tekken_;
  std::unique_ptr<backend::Device> device_;
  std::shared_ptr<model::Model> model_;
  EngineInfo info_;
  std::unique_ptr<Scheduler> scheduler_;  // last: its thread uses all of the above
};

Status EngineImpl::CheckShape() const {
  const weights::ModelConfig& config = checkpoint_->config();
  if (tekken_->vocab_size() == config.vocab_size) return {};
  return {StatusCode::kInvalidModel,
          fmt::format("tekken.json has {} ids but the checkpoint {}; take both from the same model",
                      tekken_->vocab_size(), config.vocab_size)};
}

// A quantized head is defined by its stored codes: there is nothing to find by a scan.
Status EngineImpl::CheckHeadIsFloat() const {
  const quant::Format format =
      checkpoint_->Linear(checkpoint_->Has(weights::kHeadName) ? weights::kHeadName : weights::kEmbeddingName).format;
  if (format.kind == quant::FormatKind::kFloat) return {};
  return {StatusCode::kInvalidArgument, fmt::format("the head scan is for an output head of floats, this one is {}; "
                                                    "leave it out, or export with --qhead none",
                                                    quant::FormatName(format))};
}

Status EngineImpl::Load(const EngineOptions& options) {
  VOXRT_RETURN_IF_ERROR(CheckOptions(options));
  const auto begin = std::chrono::steady_clock::now();
  VOXRT_ASSIGN_OR_RETURN(device_, backend::OpenDevice(options.backend, {.ordinal = options.device,
                                                                        .threads = options.threads,
                                                                        .head_scan = options.head_scan}));
  VOXRT_ASSIGN_OR_RETURN(const quant::DType kv_type, ParseKvType(options.kv_type, device_->info().default_kv_dtype));
  info_.speculation_rows = options.speculation_rows > 0 ? options.speculation_rows : device_->info().guess_rows;
  weights::OpenOptions open;
  open.data_path = options.data_path;
  open.threads = options.threads;
  open.progress = options.progress;
  VOXRT_ASSIGN_OR_RETURN(checkpoint_, weights::Checkpoint::Open(options.model_path, open));
  VOXRT_ASSIGN_OR_RETURN(tekken_, text::Tekken::Parse(checkpoint_->tekken_json()));
  VOXRT_RETURN_IF_ERROR(CheckShape());
  if (options.head_scan) VOXRT_RETURN_IF_ERROR(CheckHeadIsFloat());
  const int recorded = checkpoint_->default_delay_tokens();
  info_.default_delay_ms = recorded > 0 ? recorded * model::kTickMs : tekken_->default_delay_ms();
  VOXRT_ASSIGN_OR_RETURN(auto model, model::Model::Create(checkpoint_, *device_));
  model_ = std::move(model);
  VOXRT_ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(checkpoint_, model_, *device_,
                                                          {.max_sessions = options.max_sessions + kPrefixSlots,
                                                           .max_encode_ticks = options.max_encoder_ticks,
                                                           .max_item_rows = info_.speculation_rows,
                                                           .kv_dtype = kv_type}));
  VOXRT_RETURN_IF_ERROR(runner->WarmUp(options.warm_up_sessions));
  info_.backend = options.backend;
  info_.device = device_->info().description;
  info_.model_path = options.model_path;
  info_.layout = checkpoint_->layout();
  std::set<std::string> formats;
  for (const auto& [name, tensor] : checkpoint_->tensors()) {
    if (tensor.shape.size() == 2 && name.ends_with(".weight"))
      formats.insert(quant::FormatName(checkpoint_->Linear(name).format));
  }
  info_.formats = fmt::format("{}", fmt::join(formats, ", "));
  info_.kv_type = KvTypeName(kv_type);
  info_.parameters = checkpoint_->parameters();
  info_.weight_bytes = checkpoint_->mapped_bytes();
  info_.session_bytes_at_most = runner->state().BytesAtMost();
  info_.max_sessions = options.max_sessions;
  const StepShape shape = runner->shape();
  scheduler_ = std::make_unique<Scheduler>(std::move(runner), SchedulerOptions{.max_sessions = options.max_sessions,
                                                                               .prefix_slots = kPrefixSlots,
                                                                               .guess_rows = info_.speculation_rows,
                                                                               .shape = shape});
  info_.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {};
}

EngineInfo EngineImpl::info() const {
  EngineInfo info = info_;
  info.sessions = scheduler_->sessions();
  info.session_bytes_now = scheduler_->bytes_now();
  return info;
}

Result<std::unique_ptr<Session>> EngineImpl::NewSession(const SessionOptions& options) {
  VOXRT_ASSIGN_OR_RETURN(const int delay_tokens,
                         DelayTokens(options.delay_ms == 0 ? info_.default_delay_ms : options.delay_ms));
  if (!(options.temperature >= 0.0f && options.temperature <= 100.0f)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("temperature is {}; choose 0 (greedy) to 100", options.temperature));
  }
  if (options.start_position < 0 || options.start_position > (int64_t{1} << 40)) {
    return Status(StatusCode::kInvalidArgument, "start_position is out of range; choose 0 to 2^40");
  }
  if (options.max_pending_samples < 16000) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("max_pending_samples is {}; choose 16000 (one second) or more", options.max_pending_samples));
  }
  if (delay_tokens > 15 && delay_tokens < model::kMaxDelayTokens) {
    Log(LogLevel::kWarning, "delay {} ms lies between the trained values 1200 and 2400", delay_tokens * model::kTickMs);
  }
  VOXRT_RETURN_IF_ERROR(model_->delays().Ensure(delay_tokens));
  const weights::AudioConfig& audio = checkpoint_->config().audio;
  const SessionSetup setup{.tekken = &*tekken_,
                           .mel = {.sample_rate = audio.sample_rate,
                                   .bins = audio.mel_bins,
                                   .hop_samples = audio.hop_samples,
                                   .window_samples = audio.window_samples,
                                   .log_mel_max = audio.log_mel_max},
                           .samples_per_tick = audio.samples_per_token,
                           .mel_per_tick = audio.mel_per_token,
                           .delay_tokens = delay_tokens,
                           .wake = [scheduler = scheduler_.get()] { scheduler->Wake(); }};
  auto core = std::make_shared<SessionCore>(setup, options);
  VOXRT_RETURN_IF_ERROR(scheduler_->Add(core));
  return std::unique_ptr<Session>(std::make_unique<SessionImpl>(shared_from_this(), *scheduler_, std::move(core)));
}

}  // namespace

Result<std::shared_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto engine = std::make_shared<EngineImpl>();
  VOXRT_RETURN_IF_ERROR(engine->Load(options));
  return std::shared_ptr<Engine>(std::move(engine));
}

}  // namespace voxrt::engine
