#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>

namespace voxrt::model {

using backend::Epilogue;
using backend::PlanId;
using backend::Stream;
using backend::View;
using quant::DType;

Forward::Forward(const Model& model, const Limits& limits)
    : model_(model),
      limits_(limits),
      mel_per_tick_(model.config().audio.mel_per_token),
      encoder_per_tick_(model.config().audio.encoder_per_token) {}

Result<std::unique_ptr<Forward>> Forward::Create(const Model& model, backend::Device& device, const Limits& limits) {
  std::unique_ptr<Forward> forward(new Forward(model, limits));
  VOXRT_RETURN_IF_ERROR(forward->Allocate(device));
  return forward;
}

Status Forward::Allocate(backend::Device& device) {
  device_ = &device;
  const weights::ModelConfig& config = model_.config();
  const DType activation = device.info().activation_dtype;
  const int64_t ticks = std::max(limits_.encoder_ticks, limits_.sessions);
  const auto make = [&](std::unique_ptr<backend::Buffer>* buffer, int64_t rows, int64_t cols, DType dtype) -> Status {
    VOXRT_ASSIGN_OR_RETURN(*buffer, device.Allocate(rows, cols, dtype));
    return {};
  };
  VOXRT_RETURN_IF_ERROR(make(&mel_, ticks * mel_per_tick_, config.audio.mel_bins, DType::kF32));
  VOXRT_RETURN_IF_ERROR(make(&conv_, ticks * mel_per_tick_, config.encoder.dim, activation));
  VOXRT_RETURN_IF_ERROR(AllocateStack(device, config.encoder, ticks * encoder_per_tick_, &encoder_));
  VOXRT_RETURN_IF_ERROR(make(&projected_, ticks, config.decoder.dim, activation));
  VOXRT_RETURN_IF_ERROR(make(&live_audio_, limits_.sessions, config.decoder.dim, DType::kF32));
  VOXRT_RETURN_IF_ERROR(make(&bulk_audio_, ticks, config.decoder.dim, DType::kF32));
  VOXRT_RETURN_IF_ERROR(AllocateStack(device, config.decoder, limits_.decoder_rows, &decoder_));
  return make(&tokens_, limits_.head_rows, 1, DType::kI32);
}

Status Forward::AllocateStack(backend::Device& device, const weights::StackConfig& stack, int64_t rows,
                              StackScratch* scratch) {
  const DType activation = device.info().activation_dtype;
  const int64_t qkv_cols = static_cast<int64_t>(stack.heads + 2 * stack.kv_heads) * stack.head_dim;
  VOXRT_ASSIGN_OR_RETURN(scratch->x, device.Allocate(rows, stack.dim, DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(scratch->normed, device.Allocate(rows, stack.dim, activation));
  VOXRT_ASSIGN_OR_RETURN(scratch->qkv, device.Allocate(rows, qkv_cols, activation));
  VOXRT_ASSIGN_OR_RETURN(scratch->attended,
                         device.Allocate(rows, static_cast<int64_t>(stack.heads) * stack.head_dim, activation));
  VOXRT_ASSIGN_OR_RETURN(scratch->hidden, device.Allocate(rows, stack.hidden_dim, activation));
  return {};
}

Status Forward::EnsureLogits() {
  if (logits_ != nullptr) return {};
  VOXRT_ASSIGN_OR_RETURN(logits_, device_->Allocate(limits_.head_rows, model_.config().vocab_size, DType::kF32));
  return {};
}

void Forward::Layer(Stream& s, PlanId plan, int index, int64_t rows) {
  const bool encoder = plan == PlanId::kEncoder;
  const weights::StackConfig& stack = encoder ? model_.config().encoder : model_.config().decoder;
  const Model::Layer& layer = (encoder ? model_.encoder_ : model_.decoder_)[static_cast<size_t>(index)];
  const StackScratch& scratch = encoder ? encoder_ : decoder_;
  const backend::AttentionShape shape{stack.heads, stack.kv_heads, stack.head_dim};
  const View x = scratch.x->view().Rows(0, rows);
  const View normed = scratch.normed->view().Rows(0, rows);
  const View qkv = scratch.qkv->view().Rows(0, rows);
  const View attended = scratch.attended->view().Rows(0, rows);
  const View hidden = scratch.hidden->view().Rows(0, rows);

  s.AttentionInput({.plan = plan,
                    .layer = index,
                    .shape = shape,
                    .pairing = model_.pairing_,
                    .x = x,
                    .gain = layer.attention_gain->view(),
                    .epsilon = stack.norm_epsilon,
                    .qkv_weight = layer.qkv.get(),
                    .normed = normed,
                    .qkv = qkv});
  s.AttentionOutput({.plan = plan,
                     .layer = index,
                     .shape = shape,
                     .qkv = qkv,
                     .attended = attended,
                     .output_weight = layer.output.get(),
                     .x = x});
  s.FeedForwardInput({.x = x,
                      .gain = layer.ffn_gain->view(),
                      .scales = encoder ? View{} : model_.delays_->table(index),
                      .epsilon = stack.norm_epsilon,
                      .gate_up = layer.gate_up.get(),
                      .normed = normed,
                      .hidden = hidden});
  s.Linear({.x = hidden, .weight = layer.down.get(), .out = x, .epilogue = Epilogue::kAddTo});
  s.Tap(encoder ? "encoder_layer" : "decoder_layer", x);
}

void Forward::Encode(Stream& s, int64_t ticks, bool bulk) {
  const weights::ModelConfig& config = model_.config();
  const int64_t rows = ticks * encoder_per_tick_;
  const View mel = MelInput(ticks);
  const View conv = conv_->view().Rows(0, ticks * mel_per_tick_);
  const View x = encoder_.x->view().Rows(0, rows);
  const int rows_per_plan_row = static_cast<int>(mel_per_tick_ / encoder_per_tick_);
  s.Tap("mel", mel);
  s.CausalConv1d(
      {.index = 0, .weight = model_.convs_[0].get(), .rows_per_plan_row = rows_per_plan_row, .x = mel, .out = conv});
  s.CausalConv1d(
      {.index = 1, .weight = model_.convs_[1].get(), .rows_per_plan_row = rows_per_plan_row, .x = conv, .out = x});
  s.Tap("conv", x);
  for (int layer = 0; layer < config.encoder.layers; ++layer) Layer(s, PlanId::kEncoder, layer, rows);

  const View normed = encoder_.normed->view().Rows(0, rows);
  s.RmsNorm({.x = x,
             .gain = model_.encoder_gain_->view(),
             .scales = {},
             .epsilon = config.encoder.norm_epsilon,
             .out = normed});
  s.Tap("encoder", normed);
  // Four frames side by side are one row: the same dense memory seen with other dimensions.
  const int64_t stacked_cols = encoder_per_tick_ * config.encoder.dim;
  const View stacked{normed.data, normed.dtype, ticks, stacked_cols, stacked_cols};
  const View projected = projected_->view().Rows(0, ticks);
  const View audio = AudioRows(bulk).Rows(0, ticks);
  s.Linear({.x = stacked, .weight = model_.adapter_[0].get(), .out = projected, .epilogue = Epilogue::kGelu});
  s.Linear({.x = projected, .weight = model_.adapter_[1].get(), .out = audio});
  s.Tap("adapter", audio);
}

void Forward::Decode(Stream& s, int64_t rows, int64_t head_rows, bool bulk, bool with_logits) {
  const weights::ModelConfig& config = model_.config();
  const View x = decoder_.x->view().Rows(0, rows);
  s.Embed({.table = model_.embedding_.get(), .audio = AudioRows(bulk), .out = x});
  for (int layer = 0; layer < config.decoder.layers; ++layer) Layer(s, PlanId::kDecoder, layer, rows);
  s.Tap("decoder", x);
  if (head_rows == 0) return;
  const View logits = with_logits ? Logits(head_rows) : View{};
  s.Head({.x = x,
          .gain = model_.decoder_gain_->view(),
          .epsilon = config.decoder.norm_epsilon,
          .weight = (model_.own_head_ ? model_.own_head_ : model_.embedding_).get(),
          .normed = decoder_.normed->view().Rows(0, head_rows),
          .logits = logits,
          .token = Tokens(head_rows)});
  if (with_logits) s.Tap("logits", logits);
}

}  // namespace voxrt::model
