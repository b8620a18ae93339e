#include "engine/model_runner.h"

#include <algorithm>

namespace voxrt::engine {
namespace {

using backend::KvId;
using backend::PlanId;
using backend::RunKind;
using backend::Stream;

void Restart(backend::BatchPlan* plan) {
  plan->groups.clear();
  plan->rows = 0;
  plan->rope_cos.clear();
  plan->rope_sin.clear();
  plan->token.clear();
  plan->audio_row.clear();
  plan->delay_row.clear();
  plan->head_rows.clear();
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::shared_ptr<const weights::Checkpoint> checkpoint,
                                                         std::shared_ptr<model::Model> model, backend::Device& device,
                                                         const Options& options) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner());
  runner->checkpoint_ = std::move(checkpoint);
  runner->model_ = std::move(model);
  runner->options_ = options;
  // One call holds a whole prompt, a pass over every session's guesses, and a live row of every session.
  runner->max_decode_rows_ =
      std::max<int64_t>({options.max_encode_ticks, options.max_sessions * options.max_item_rows, 64});
  runner->max_decode_rows_ = std::max<int64_t>(std::min<int64_t>(runner->max_decode_rows_, 1024), options.max_sessions);
  VOXRT_ASSIGN_OR_RETURN(runner->state_, device.CreateSessionState(runner->model_->StateSpec(
                                             options.max_sessions, options.max_item_rows, options.kv_dtype)));
  const model::Limits limits{.encoder_ticks = options.max_encode_ticks,
                             .decoder_rows = runner->max_decode_rows_,
                             .head_rows = runner->max_decode_rows_,
                             .sessions = options.max_sessions};
  VOXRT_ASSIGN_OR_RETURN(runner->forward_, model::Forward::Create(*runner->model_, device, limits));
  const int64_t encoder_rows = std::max<int64_t>(options.max_encode_ticks, options.max_sessions) *
                               runner->model_->config().audio.encoder_per_token;
  VOXRT_ASSIGN_OR_RETURN(runner->stream_, device.CreateStream({.max_encoder_rows = encoder_rows,
                                                               .max_decoder_rows = runner->max_decode_rows_,
                                                               .state = runner->state_.get()}));
  return runner;
}

StepShape ModelRunner::shape() const {
  return {.mel_bins = model_->config().audio.mel_bins,
          .mel_per_tick = model_->config().audio.mel_per_token,
          .vocab_size = model_->config().vocab_size,
          .max_encode_ticks = options_.max_encode_ticks,
          .max_decode_rows = max_decode_rows_,
          .max_item_rows = options_.max_item_rows};
}

int64_t ModelRunner::PlanEncoder(std::span<const EncodeItem> items) {
  const int per_tick = model_->config().audio.encoder_per_token;
  backend::BatchPlan& plan = encoder_plan_;
  Restart(&plan);
  for (const EncodeItem& item : items) {
    const int64_t first = item.first_tick * per_tick;
    const auto rows = static_cast<int32_t>(item.ticks * per_tick);
    plan.groups.push_back({.slot = item.slot, .row_begin = plan.rows, .row_count = rows, .first_index = first});
    for (int64_t row = 0; row < rows; ++row) {
      model_->encoder_rope().Append(first + row + item.position_offset * per_tick, &plan.rope_cos, &plan.rope_sin);
    }
    plan.rows += rows;
  }
  stream_->SetPlan(PlanId::kEncoder, plan);
  return plan.rows / per_tick;
}

int64_t ModelRunner::PlanDecoder(std::span<const DecodeItem> items) {
  backend::BatchPlan& plan = decoder_plan_;
  Restart(&plan);
  for (const DecodeItem& item : items) {
    const auto rows = static_cast<int32_t>(item.tokens.size());
    plan.groups.push_back(
        {.slot = item.slot, .row_begin = plan.rows, .row_count = rows, .first_index = item.first_index});
    for (int32_t row = 0; row < rows; ++row) {
      model_->decoder_rope().Append(item.first_index + row + item.position_offset, &plan.rope_cos, &plan.rope_sin);
      plan.token.push_back(item.tokens[static_cast<size_t>(row)]);
      plan.audio_row.push_back(static_cast<int32_t>(item.audio_row + row));
      plan.delay_row.push_back(model::DelayScales::Row(item.delay_tokens));
      if (row >= item.head_begin) plan.head_rows.push_back(plan.rows + row);
    }
    plan.rows += rows;
  }
  stream_->SetPlan(PlanId::kDecoder, plan);
  return static_cast<int64_t>(plan.head_rows.size());
}

void ModelRunner::UploadMel(std::span<const EncodeItem> items, int64_t ticks) {
  const size_t tick_floats =
      static_cast<size_t>(model_->config().audio.mel_per_token) * static_cast<size_t>(model_->config().audio.mel_bins);
  if (items.size() == 1) {
    stream_->Upload(forward_->MelInput(ticks), items.front().mel);
    return;
  }
  mel_.clear();
  for (const EncodeItem& item : items)
    mel_.insert(mel_.end(), item.mel, item.mel + static_cast<size_t>(item.ticks) * tick_floats);
  stream_->Upload(forward_->MelInput(ticks), mel_.data());
}

Status ModelRunner::Encode(std::span<const EncodeItem> items) {
  const int64_t ticks = PlanEncoder(items);
  VOXRT_CHECK(ticks <= std::max<int64_t>(options_.max_encode_ticks, options_.max_sessions));
  UploadMel(items, ticks);
  stream_->Run({.kind = RunKind::kEncode, .encoder_rows = encoder_plan_.rows},
               [&](Stream& s) { forward_->Encode(s, ticks, /*bulk=*/true); });
  return {};
}

Status ModelRunner::Decode(std::span<const DecodeItem> items, bool with_logits, DecodeOutput* output) {
  if (with_logits) VOXRT_RETURN_IF_ERROR(forward_->EnsureLogits());
  const int64_t head_rows = PlanDecoder(items);
  VOXRT_CHECK(decoder_plan_.rows <= max_decode_rows_);
  const int64_t rows = decoder_plan_.rows;
  stream_->Run({.kind = RunKind::kDecode, .decoder_rows = rows, .head_rows = head_rows, .with_logits = with_logits},
               [&](Stream& s) { forward_->Decode(s, rows, head_rows, /*bulk=*/true, with_logits); });
  return Collect(head_rows, with_logits, output);
}

Status ModelRunner::LiveTick(std::span<const EncodeItem> encode, std::span<const DecodeItem> decode, bool with_logits,
                             DecodeOutput* output) {
  if (with_logits) VOXRT_RETURN_IF_ERROR(forward_->EnsureLogits());
  const int64_t ticks = PlanEncoder(encode);
  const int64_t head_rows = PlanDecoder(decode);
  UploadMel(encode, ticks);
  stream_->Run({.kind = RunKind::kLiveTick,
                .encoder_rows = encoder_plan_.rows,
                .decoder_rows = decoder_plan_.rows,
                .head_rows = head_rows,
                .with_logits = with_logits},
               [&](Stream& s) {
                 forward_->Encode(s, ticks, /*bulk=*/false);
                 forward_->Decode(s, decoder_plan_.rows, head_rows, /*bulk=*/false, with_logits);
               });
  return Collect(head_rows, with_logits, output);
}

Status ModelRunner::Collect(int64_t head_rows, bool with_logits, DecodeOutput* output) {
  output->tokens.resize(static_cast<size_t>(head_rows));
  output->logits.clear();
  if (head_rows == 0) return stream_->Sync();
  VOXRT_RETURN_IF_ERROR(stream_->Readback(forward_->Tokens(head_rows), output->tokens.data()));
  if (!with_logits) return {};
  output->logits.resize(static_cast<size_t>(head_rows * model_->config().vocab_size));
  return stream_->Readback(forward_->Logits(head_rows), output->logits.data());
}

Status ModelRunner::WarmUp(int sessions) {
  VOXRT_CHECK(sessions <= options_.max_sessions);
  const std::vector<float> silence(
      static_cast<size_t>(model_->config().audio.mel_per_token) * static_cast<size_t>(model_->config().audio.mel_bins),
      0.0f);
  const std::vector<int32_t> token = {0};
  std::vector<EncodeItem> encode;
  std::vector<DecodeItem> decode;
  DecodeOutput output;
  Status status;
  for (int slot = 0; slot < sessions && status.ok(); ++slot) {
    status = Reserve(slot, 1, 1);
    encode.push_back({.slot = slot, .ticks = 1, .mel = silence.data()});
    decode.push_back({.slot = slot, .tokens = token, .audio_row = slot});
    // Every tick begins at the beginning, so the ones before leave nothing but the tails, which Clear resets.
    if (status.ok()) status = LiveTick(encode, decode, /*with_logits=*/false, &output);
  }
  for (int slot = 0; slot < static_cast<int>(encode.size()); ++slot) {
    Clear(slot);
    Release(slot);
  }
  return status;
}

Status ModelRunner::Reserve(int slot, int64_t ticks_end, int64_t positions_end) {
  VOXRT_RETURN_IF_ERROR(state_->Reserve(slot, KvId::kEncoder, ticks_end * model_->config().audio.encoder_per_token));
  return state_->Reserve(slot, KvId::kDecoder, positions_end);
}

void ModelRunner::Clear(int slot) { state_->Clear(slot); }
void ModelRunner::Release(int slot) { state_->Release(slot); }

Status ModelRunner::Clone(int from, int to, int64_t ticks) {
  VOXRT_RETURN_IF_ERROR(Reserve(to, ticks, ticks));
  stream_->CloneState(from, to, ticks * model_->config().audio.encoder_per_token, ticks);
  return {};
}

int64_t ModelRunner::BytesNow(int slot) const { return state_->BytesNow(slot); }

Status ModelRunner::Health() const {
  if (!checkpoint_->file_changed()) return {};
  return {StatusCode::kModelFileChanged,
          "the model file became shorter while it was in use; restore it and start again (do not overwrite a model in "
          "place)"};
}

}  // namespace voxrt::engine
