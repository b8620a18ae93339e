#include "server/testing/fake_engine.h"

#include <condition_variable>
#include <mutex>

#include "engine/fake_step_runner.h"
#include "engine/scheduler.h"
#include "engine/session_core.h"
#include "server/protocol/base64.h"

namespace voxrt::server::testing {
namespace {

using engine::DecodeItem;
using engine::DecodeOutput;
using engine::EncodeItem;

std::string TekkenJson() {
  std::string vocab;
  for (int i = 0; i < 256; ++i) {
    const std::string piece = (i % 4 == 3 ? "s" : " w") + std::to_string(i) + (i % 16 == 5 ? "." : "");
    vocab += (i == 0 ? "" : ",") + std::string("{\"rank\":") + std::to_string(i) + ",\"token_bytes\":\"" +
             EncodeBase64(piece) + "\",\"token_str\":null}";
  }
  return "{\"config\":{\"default_vocab_size\":1256,\"default_num_special_tokens\":1000,\"version\":\"v13\"},\"vocab\":"
         "[" +
         vocab +
         "],\"special_tokens\":[{\"rank\":1,\"token_str\":\"<s>\",\"is_control\":true},{\"rank\":2,\"token_str\":\"</"
         "s>\",\"is_control\":true},"
         "{\"rank\":32,\"token_str\":\"[STREAMING_PAD]\",\"is_control\":true},"
         "{\"rank\":33,\"token_str\":\"[STREAMING_WORD]\",\"is_control\":true}],\"audio\":{\"streaming_n_left_pad_"
         "tokens\":32}}";
}

class StallableRunner : public engine::FakeStepRunner {
 public:
  using FakeStepRunner::FakeStepRunner;

  Status Encode(std::span<const EncodeItem> items) override {
    WaitWhileStalled();
    return FakeStepRunner::Encode(items);
  }
  Status LiveTick(std::span<const EncodeItem> encode, std::span<const DecodeItem> decode, bool with_logits,
                  DecodeOutput* output) override {
    WaitWhileStalled();
    return FakeStepRunner::LiveTick(encode, decode, with_logits, output);
  }
  Status Reserve(int slot, int64_t ticks, int64_t positions) override {
    if (fail_next.exchange(false)) return {StatusCode::kResourceExhausted, "no room for this session"};
    return FakeStepRunner::Reserve(slot, ticks, positions);
  }
  void Stall(bool stalled) {
    {
      const std::lock_guard lock(mutex_);
      stalled_ = stalled;
    }
    changed_.notify_all();
  }

  std::atomic<bool> fail_next{false};

 private:
  void WaitWhileStalled() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !stalled_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stalled_ = false;
};

class FakeSession : public engine::Session {
 public:
  FakeSession(std::shared_ptr<engine::Engine> engine, engine::Scheduler& scheduler,
              std::shared_ptr<engine::SessionCore> core)
      : engine_(std::move(engine)), scheduler_(scheduler), core_(std::move(core)) {}
  ~FakeSession() override { scheduler_.Remove(*core_); }

  Result<size_t> Feed(std::span<const float> samples) override { return core_->Feed(samples); }
  Status FeedAll(std::span<const float> samples) override { return core_->FeedAll(samples); }
  Status Flush() override { return core_->Flush(); }
  Status Finish() override { return core_->Finish(); }
  void Reset() override { core_->Reset(); }
  bool Poll(std::vector<engine::Event>* events) override { return core_->Poll(events); }
  bool Wait(std::vector<engine::Event>* events, std::chrono::milliseconds timeout) override {
    return core_->Wait(events, timeout);
  }
  void SetListener(std::function<void()> listener) override { core_->SetListener(std::move(listener)); }
  engine::SessionStats stats() const override { return core_->stats(); }

 private:
  std::shared_ptr<engine::Engine> engine_;
  engine::Scheduler& scheduler_;
  std::shared_ptr<engine::SessionCore> core_;
};

class FakeEngineImpl : public FakeEngine, public std::enable_shared_from_this<FakeEngineImpl> {
 public:
  explicit FakeEngineImpl(int max_sessions) : tekken_(*text::Tekken::Parse(TekkenJson())), max_sessions_(max_sessions) {
    const engine::StepShape shape{.mel_bins = 128,
                                  .mel_per_tick = 8,
                                  .vocab_size = 1256,
                                  .max_encode_ticks = 32,
                                  .max_decode_rows = 256,
                                  .max_item_rows = 4};
    auto runner = std::make_unique<StallableRunner>(shape);
    runner_ = runner.get();
    scheduler_ = std::make_unique<engine::Scheduler>(
        std::move(runner),
        engine::SchedulerOptions{.max_sessions = max_sessions, .prefix_slots = 0, .guess_rows = 4, .shape = shape});
  }
  ~FakeEngineImpl() override { runner_->Stall(false); }

  Result<std::unique_ptr<engine::Session>> NewSession(const engine::SessionOptions& options) override {
    const int delay_ms = options.delay_ms == 0 ? 480 : options.delay_ms;
    const engine::SessionSetup setup{.tekken = &tekken_,
                                     .mel = {},
                                     .samples_per_tick = 1280,
                                     .mel_per_tick = 8,
                                     .delay_tokens = delay_ms / 80,
                                     .wake = [scheduler = scheduler_.get()] { scheduler->Wake(); }};
    auto core = std::make_shared<engine::SessionCore>(setup, options);
    VOXRT_RETURN_IF_ERROR(scheduler_->Add(core));
    return std::unique_ptr<engine::Session>(
        std::make_unique<FakeSession>(shared_from_this(), *scheduler_, std::move(core)));
  }
  const weights::ModelConfig& config() const override { return config_; }
  const text::Tekken& tekken() const override { return tekken_; }
  engine::EngineInfo info() const override {
    engine::EngineInfo info;
    info.backend = "fake";
    info.device = "hashes";
    info.model_path = "fake";
    info.max_sessions = max_sessions_;
    info.sessions = scheduler_->sessions();
    return info;
  }
  engine::EngineStats stats() const override { return scheduler_->stats(); }
  Status health() const override { return scheduler_->health(); }

  void Stall(bool stalled) override { runner_->Stall(stalled); }
  void LoseDevice() override { runner_->device_lost = true; }
  void FailNextSession() override { runner_->fail_next = true; }
  std::string Transcribe(const std::vector<float>& samples, int delay_ms) override;

 private:
  const text::Tekken tekken_;
  const int max_sessions_;
  weights::ModelConfig config_;
  StallableRunner* runner_ = nullptr;
  std::unique_ptr<engine::Scheduler> scheduler_;
};

std::string FakeEngineImpl::Transcribe(const std::vector<float>& samples, int delay_ms) {
  engine::SessionOptions options;
  options.delay_ms = delay_ms;
  Result<std::unique_ptr<engine::Session>> session = NewSession(options);
  VOXRT_CHECK(session.ok());
  VOXRT_CHECK((*session)->FeedAll(samples).ok());
  VOXRT_CHECK((*session)->Finish().ok());
  std::string text;
  std::vector<engine::Event> events;
  for (;;) {
    (void)(*session)->Wait(&events, std::chrono::milliseconds(1000));
    for (const engine::Event& event : events) {
      text += event.text;
      if (event.type != engine::EventType::kToken) return text;
    }
  }
}

}  // namespace

std::shared_ptr<FakeEngine> FakeEngine::Create(int max_sessions) {
  return std::make_shared<FakeEngineImpl>(max_sessions);
}

}  // namespace voxrt::server::testing
