// Timing through the same interfaces that transcribe uses; see the header.
#include "bench_scenarios.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "audio/mel.h"
#include "backend/device.h"
#include "backend/stream.h"
#include "bench_machine.h"

namespace voxrt::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLookAheadSamples = 40;  // of the mel window, beyond a tick's own samples
constexpr std::chrono::milliseconds kWait(1000);
constexpr int kStalledWaits = 600;

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Takes events until `done` says so about one of them.
Status WaitFor(engine::Session& session, const std::function<bool(const engine::Event&)>& done) {
  std::vector<engine::Event> events;
  for (int waits = 0; waits < kStalledWaits; ++waits) {
    if (!session.Wait(&events, kWait)) continue;
    bool found = false;
    for (const engine::Event& event : events) {
      if (event.type == engine::EventType::kError) return event.status;
      found = done(event) || found;
    }
    if (found) return {};
    waits = 0;
  }
  return {StatusCode::kInternal, "the engine gave no event for ten minutes"};
}

}  // namespace

StageBytes CountStageBytes(const weights::Checkpoint& checkpoint) {
  StageBytes bytes;
  const bool own_head = checkpoint.Has(weights::kHeadName);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with("mm_streams_embeddings.embedding_module.tok_embeddings")) {
      if (!own_head) bytes.head += tensor.bytes;
    } else if (name.starts_with("output.")) {
      bytes.head += tensor.bytes;
    } else if (name.starts_with("layers.")) {
      // The delay networks are evaluated once per delay, not per tick.
      if (name.find("ada") == std::string::npos) bytes.decoder += tensor.bytes;
    } else {
      bytes.encoder += tensor.bytes;
    }
  }
  return bytes;
}

Result<LiveResult> RunLive(engine::Engine& engine, std::span<const float> samples, int64_t warmup_ticks) {
  const int64_t tick_samples = engine.config().audio.samples_per_token;
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Session> session,
                         engine.NewSession({.all_tokens = true, .live = true}));
  const int64_t delay_ticks = engine.info().default_delay_ms / 80 + 1;
  // The first token needs the delay; from then on each tick gives one.
  size_t at = 0;
  const auto feed = [&](int64_t count) -> Status {
    const std::span<const float> block = samples.subspan(at, static_cast<size_t>(count));
    at += block.size();
    return session->FeedAll(block);
  };
  const int64_t total = static_cast<int64_t>(samples.size());
  const int64_t begin_samples = tick_samples * delay_ticks + kLookAheadSamples;
  if (total < begin_samples + tick_samples * (warmup_ticks + 2)) {
    return Status(StatusCode::kInvalidArgument, "too little audio for the live scenario; give more with --seconds");
  }
  const auto token = [](const engine::Event& event) { return event.type == engine::EventType::kToken; };
  VOXRT_RETURN_IF_ERROR(feed(begin_samples));
  VOXRT_RETURN_IF_ERROR(WaitFor(*session, token));

  LiveResult result;
  std::vector<double> tick_ms;
  for (int64_t tick = 0; static_cast<int64_t>(at) + tick_samples <= total; ++tick) {
    const Clock::time_point begin = Clock::now();
    VOXRT_RETURN_IF_ERROR(feed(tick_samples));
    VOXRT_RETURN_IF_ERROR(WaitFor(*session, token));
    if (tick < warmup_ticks) continue;
    const double seconds = Since(begin);
    result.seconds += seconds;
    tick_ms.push_back(seconds * 1e3);
  }
  std::sort(tick_ms.begin(), tick_ms.end());
  result.ticks = static_cast<int64_t>(tick_ms.size());
  result.p50_ms = Percentile(tick_ms, 0.50);
  result.p90_ms = Percentile(tick_ms, 0.90);
  result.p99_ms = Percentile(tick_ms, 0.99);
  result.max_ms = tick_ms.back();
  const double tick_seconds = static_cast<double>(tick_samples) / engine.config().audio.sample_rate;
  result.x_realtime = static_cast<double>(result.ticks) * tick_seconds / result.seconds;
  return result;
}

Result<OfflineResult> RunOffline(engine::Engine& engine, std::span<const float> samples) {
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Session> session, engine.NewSession({.live = false}));
  const engine::EngineStats before = engine.stats();
  const Clock::time_point begin = Clock::now();
  std::vector<engine::Event> events;
  for (std::span<const float> rest = samples; !rest.empty();) {
    VOXRT_ASSIGN_OR_RETURN(const size_t taken, session->Feed(rest));
    rest = rest.subspan(taken);
    session->Poll(&events);
    if (taken == 0) session->Wait(&events, std::chrono::milliseconds(1));
  }
  VOXRT_RETURN_IF_ERROR(session->Finish());
  VOXRT_RETURN_IF_ERROR(
      WaitFor(*session, [](const engine::Event& event) { return event.type == engine::EventType::kFinished; }));

  OfflineResult result;
  result.seconds = Since(begin);
  const engine::EngineStats after = engine.stats();
  const double audio_seconds = static_cast<double>(samples.size()) / engine.config().audio.sample_rate;
  result.x_realtime = audio_seconds / result.seconds;
  result.ticks = static_cast<int64_t>(samples.size()) / engine.config().audio.samples_per_token;
  result.decode_passes = after.decode_passes - before.decode_passes;
  const double encode_ms = (after.encode_seconds - before.encode_seconds) * 1e3;
  const double decode_ms = (after.decode_seconds - before.decode_seconds) * 1e3;
  const auto tokens = static_cast<double>(after.decode_tokens - before.decode_tokens);
  if (result.ticks > 0) {
    result.encode_ms_per_tick = encode_ms / static_cast<double>(result.ticks);
    result.decode_ms_per_tick = decode_ms / static_cast<double>(result.ticks);
  }
  if (result.decode_passes > 0) {
    result.decode_ms_per_pass = decode_ms / static_cast<double>(result.decode_passes);
    result.tokens_per_pass = tokens / static_cast<double>(result.decode_passes);
  }
  return result;
}

double MeasureMel(const weights::AudioConfig& config, std::span<const float> samples) {
  audio::MelStream mel({.sample_rate = config.sample_rate,
                        .bins = config.mel_bins,
                        .hop_samples = config.hop_samples,
                        .window_samples = config.window_samples,
                        .log_mel_max = config.log_mel_max});
  const auto tick = static_cast<size_t>(config.samples_per_token);
  std::vector<float> rows;
  int64_t ticks = 0;
  const Clock::time_point begin = Clock::now();
  for (size_t at = 0; at + tick <= samples.size(); at += tick, ++ticks) {
    rows.clear();
    mel.Push(samples.subspan(at, tick), &rows);
  }
  return ticks == 0 ? 0.0 : Since(begin) * 1e3 / static_cast<double>(ticks);
}

Result<double> MeasureHead(const weights::Checkpoint& checkpoint, backend::Device& device) {
  constexpr int kWarmup = 10;
  constexpr double kMinSeconds = 1.0;
  const std::string_view name = checkpoint.Has(weights::kHeadName) ? weights::kHeadName : weights::kEmbeddingName;
  const int64_t dim = checkpoint.config().decoder.dim;
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::PreparedLinear> weight,
                         device.Prepare({.name = std::string(name),
                                         .role = backend::LinearRole::kHead,
                                         .blocks = {{.weight = checkpoint.Linear(name), .bias = {}}}}));
  // The smallest session state that a stream accepts: one slot whose caches are never used.
  const backend::KvSpec kv{.layers = 1, .kv_heads = 1, .head_dim = 64, .window = 4, .max_rows = 4};
  VOXRT_ASSIGN_OR_RETURN(
      const std::unique_ptr<backend::SessionState> state,
      device.CreateSessionState({.max_sessions = 1, .encoder = kv, .decoder = kv, .conv_channels = {1, 1}}));
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Stream> stream,
                         device.CreateStream({.max_encoder_rows = 4, .max_decoder_rows = 1, .state = state.get()}));
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Buffer> x, device.Allocate(1, dim, quant::DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Buffer> gain, device.Allocate(1, dim, quant::DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Buffer> normed,
                         device.Allocate(1, dim, device.info().activation_dtype));
  VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Buffer> token, device.Allocate(1, 1, quant::DType::kI32));

  // An input like a real one: none of its values stands out, and no two rows of the head give the same logit.
  std::vector<float> values(static_cast<size_t>(dim));
  std::minstd_rand random(1);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  VOXRT_RETURN_IF_ERROR(device.Write(x->view(), values.data()));
  std::fill(values.begin(), values.end(), 1.0f);
  VOXRT_RETURN_IF_ERROR(device.Write(gain->view(), values.data()));

  const backend::BatchPlan plan{.groups = {{.slot = 0, .row_begin = 0, .row_count = 1, .first_index = 0}},
                                .rows = 1,
                                .rope_cos = std::vector<float>(32, 1.0f),
                                .rope_sin = std::vector<float>(32, 0.0f),
                                .token = {0},
                                .audio_row = {0},
                                .delay_row = {0},
                                .head_rows = {0}};
  const auto step = [&]() -> Status {
    stream->SetPlan(backend::PlanId::kDecoder, plan);
    stream->Run({.kind = backend::RunKind::kDecode, .decoder_rows = 1, .head_rows = 1}, [&](backend::Stream& s) {
      s.Head({.x = x->view(),
              .gain = gain->view(),
              .weight = weight.get(),
              .normed = normed->view(),
              .logits = {},
              .token = token->view()});
    });
    int32_t id = 0;
    return stream->Readback(token->view(), &id);
  };
  for (int i = 0; i < kWarmup; ++i) VOXRT_RETURN_IF_ERROR(step());
  std::vector<double> times_ms;
  for (const Clock::time_point begin = Clock::now(); Since(begin) < kMinSeconds;) {
    const Clock::time_point one = Clock::now();
    VOXRT_RETURN_IF_ERROR(step());
    times_ms.push_back(Since(one) * 1e3);
  }
  std::sort(times_ms.begin(), times_ms.end());
  return Percentile(times_ms, 0.5);
}

}  // namespace voxrt::app
