#include "gpu_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace voxrt::bench {

using backend::BatchPlan;
using backend::KvId;
using backend::LinearRole;
using backend::PlanId;
using backend::Stream;
using backend::View;
using quant::DType;
using quant::FormatKind;

namespace {

constexpr int32_t kFirstToken = 1;
constexpr int32_t kGuessedToken = 11;

}  // namespace

Result<std::unique_ptr<SyntheticModel>> SyntheticModel::Create(backend::Device& device, const SyntheticConfig& config) {
  std::unique_ptr<SyntheticModel> model(new SyntheticModel(device, config));
  VOXRT_RETURN_IF_ERROR(model->Init());
  return model;
}

Result<std::unique_ptr<backend::PreparedLinear>> SyntheticModel::Weight(const char* name, LinearRole role,
                                                                        const quant::Format& format,
                                                                        const std::vector<int64_t>& rows, int64_t cols,
                                                                        bool bias, int64_t* bytes) {
  return weights_->Prepare(
      device_, {.name = name, .role = role, .format = format, .rows = rows, .cols = cols, .bias = bias}, bytes);
}

Result<View> SyntheticModel::NewBuffer(int64_t rows, int64_t cols, DType dtype, float value) {
  VOXRT_ASSIGN_OR_RETURN(std::unique_ptr<backend::Buffer> buffer, device_.Allocate(rows, cols, dtype));
  const View view = buffer->view();
  if (value != 0.0f) {
    const std::vector<float> values(static_cast<size_t>(rows * cols), value);
    VOXRT_RETURN_IF_ERROR(device_.Write(view, values.data()));
  }
  buffers_.push_back(std::move(buffer));
  return view;
}

Status SyntheticModel::InitStack(const SyntheticConfig::Stack& stack, bool bias, std::vector<Layer>* layers,
                                 int64_t* bytes) {
  for (int i = 0; i < stack.layers; ++i) {
    Layer layer;
    const int64_t q = int64_t{stack.heads} * stack.head_dim;
    const int64_t kv = int64_t{stack.kv_heads} * stack.head_dim;
    VOXRT_ASSIGN_OR_RETURN(layer.qkv,
                           Weight("qkv", LinearRole::kQkv, config_.linear, {q, kv, kv}, stack.dim, bias, bytes));
    VOXRT_ASSIGN_OR_RETURN(layer.output, Weight("o", LinearRole::kPlain, config_.linear, {stack.dim}, q, bias, bytes));
    VOXRT_ASSIGN_OR_RETURN(layer.gate_up, Weight("gate_up", LinearRole::kGateUp, config_.linear,
                                                 {stack.hidden, stack.hidden}, stack.dim, false, bytes));
    VOXRT_ASSIGN_OR_RETURN(layer.down,
                           Weight("down", LinearRole::kPlain, config_.linear, {stack.dim}, stack.hidden, bias, bytes));
    layers->push_back(std::move(layer));
  }
  return {};
}

Status SyntheticModel::Init() {
  const SyntheticConfig& c = config_;
  weights_ =
      std::make_unique<RandomWeights>(std::max(c.vocab * c.decoder.dim * 2, c.decoder.hidden * c.decoder.dim * 2),
                                      std::max(c.vocab, 2 * c.decoder.hidden) * (c.decoder.hidden / 32 + 1),
                                      c.linear.kind == FormatKind::kFloat || c.head.kind == FormatKind::kFloat);
  VOXRT_RETURN_IF_ERROR(InitStack(c.encoder, true, &encoder_, &bytes_.encoder_weights));
  VOXRT_RETURN_IF_ERROR(InitStack(c.decoder, false, &decoder_, &bytes_.decoder_weights));
  conv_weight_.resize(static_cast<size_t>(3 * c.encoder.dim * c.encoder.dim));
  for (size_t i = 0; i < conv_weight_.size(); ++i) conv_weight_[i] = quant::F32ToBF16(weights_->Small(i));
  conv_bias_.resize(static_cast<size_t>(c.encoder.dim), 0.01f);
  const int64_t channels[2] = {c.mel_bins, c.encoder.dim};
  for (int i = 0; i < 2; ++i) {
    VOXRT_ASSIGN_OR_RETURN(conv_[i], device_.PrepareConv({.name = "conv",
                                                          .weight = conv_weight_.data(),
                                                          .dtype = DType::kBF16,
                                                          .out_channels = c.encoder.dim,
                                                          .in_channels = channels[i],
                                                          .stride = i + 1,
                                                          .bias = conv_bias_}));
    bytes_.encoder_weights += 3 * channels[i] * c.encoder.dim * 2;
  }
  VOXRT_ASSIGN_OR_RETURN(adapter_[0], Weight("adapter.0", LinearRole::kPlain, c.linear, {c.decoder.dim},
                                             4 * c.encoder.dim, false, &bytes_.encoder_weights));
  VOXRT_ASSIGN_OR_RETURN(adapter_[1], Weight("adapter.2", LinearRole::kPlain, c.linear, {c.decoder.dim}, c.decoder.dim,
                                             false, &bytes_.encoder_weights));
  VOXRT_ASSIGN_OR_RETURN(
      head_, Weight("head", LinearRole::kHead, c.head, {c.vocab}, c.decoder.dim, false, &bytes_.head_weights));

  const DType act = device_.info().activation_dtype;
  const int64_t e = c.max_encoder_rows;
  const int64_t d = c.max_decoder_rows;
  const int64_t most = std::max(e, d);
  VOXRT_ASSIGN_OR_RETURN(mel_, NewBuffer(2 * e, c.mel_bins, DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(conv1_, NewBuffer(2 * e, c.encoder.dim, act));
  VOXRT_ASSIGN_OR_RETURN(encoder_x_, NewBuffer(e, c.encoder.dim, DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(encoder_out_, NewBuffer(e, c.encoder.dim, act));
  VOXRT_ASSIGN_OR_RETURN(adapter_hidden_, NewBuffer(std::max<int64_t>(e / 4, 1), c.decoder.dim, act));
  VOXRT_ASSIGN_OR_RETURN(audio_, NewBuffer(std::max<int64_t>(e / 4, d), c.decoder.dim, DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(decoder_x_, NewBuffer(d, c.decoder.dim, DType::kF32));
  VOXRT_ASSIGN_OR_RETURN(token_, NewBuffer(d, 1, DType::kI32));
  VOXRT_ASSIGN_OR_RETURN(normed_, NewBuffer(most, std::max(c.encoder.dim, c.decoder.dim), act));
  auto widths = [&](auto f) { return std::max(f(c.encoder), f(c.decoder)); };
  VOXRT_ASSIGN_OR_RETURN(
      qkv_, NewBuffer(most, widths([](const auto& s) { return int64_t{s.heads + 2 * s.kv_heads} * s.head_dim; }), act));
  VOXRT_ASSIGN_OR_RETURN(attended_,
                         NewBuffer(most, widths([](const auto& s) { return int64_t{s.heads} * s.head_dim; }), act));
  VOXRT_ASSIGN_OR_RETURN(hidden_, NewBuffer(most, widths([](const auto& s) { return s.hidden; }), act));
  VOXRT_ASSIGN_OR_RETURN(gain_, NewBuffer(1, std::max(c.encoder.dim, c.decoder.dim), DType::kF32, 1.0f));
  VOXRT_ASSIGN_OR_RETURN(delay_scales_, NewBuffer(2, c.decoder.dim, DType::kF32, 1.1f));
  mel_values_.resize(static_cast<size_t>(2 * e * c.mel_bins));
  return Restart();
}

Status SyntheticModel::Restart(DType kv_dtype) {
  config_.kv = kv_dtype;
  const SyntheticConfig& c = config_;
  stream_.reset();
  state_.reset();
  auto kv = [&](const SyntheticConfig::Stack& s, int64_t rows) {
    return backend::KvSpec{.layers = s.layers,
                           .kv_heads = s.kv_heads,
                           .head_dim = s.head_dim,
                           .window = s.window,
                           .max_rows = rows,
                           .dtype = c.kv};
  };
  VOXRT_ASSIGN_OR_RETURN(state_, device_.CreateSessionState({.max_sessions = c.max_sessions,
                                                             .encoder = kv(c.encoder, 16),
                                                             .decoder = kv(c.decoder, c.max_item_rows),
                                                             .conv_channels = {c.mel_bins, c.encoder.dim}}));
  VOXRT_ASSIGN_OR_RETURN(stream_, device_.CreateStream({.max_encoder_rows = c.max_encoder_rows,
                                                        .max_decoder_rows = c.max_decoder_rows,
                                                        .state = state_.get()}));
  return {};
}

void SyntheticModel::EmitStack(Stream& s, PlanId plan, const SyntheticConfig::Stack& stack,
                               const std::vector<Layer>& layers, const View& x, int64_t rows, const View& scales) {
  const backend::AttentionShape shape{stack.heads, stack.kv_heads, stack.head_dim};
  auto piece = [&](const View& v, int64_t cols) { return View{v.data, v.dtype, rows, cols, cols}; };
  const View normed = piece(normed_, stack.dim);
  const View qkv = piece(qkv_, int64_t{stack.heads + 2 * stack.kv_heads} * stack.head_dim);
  const View attended = piece(attended_, int64_t{stack.heads} * stack.head_dim);
  const View hidden = piece(hidden_, stack.hidden);
  const View gain{gain_.data, DType::kF32, 1, stack.dim, stack.dim};
  for (int i = 0; i < stack.layers; ++i) {
    const Layer& layer = layers[static_cast<size_t>(i)];
    s.AttentionInput({.plan = plan,
                      .layer = i,
                      .shape = shape,
                      .x = x,
                      .gain = gain,
                      .epsilon = 1e-5f,
                      .qkv_weight = layer.qkv.get(),
                      .normed = normed,
                      .qkv = qkv});
    s.AttentionOutput({.plan = plan,
                       .layer = i,
                       .shape = shape,
                       .qkv = qkv,
                       .attended = attended,
                       .output_weight = layer.output.get(),
                       .x = x});
    s.FeedForwardInput({.x = x,
                        .gain = gain,
                        .scales = scales,
                        .epsilon = 1e-5f,
                        .gate_up = layer.gate_up.get(),
                        .normed = normed,
                        .hidden = hidden});
    s.Linear({.x = hidden, .weight = layer.down.get(), .out = x, .epilogue = backend::Epilogue::kAddTo});
  }
}

void SyntheticModel::EmitEncoder(Stream& s, int64_t ticks) {
  const SyntheticConfig& c = config_;
  const int64_t rows = 4 * ticks;
  const View x = encoder_x_.Rows(0, rows);
  s.CausalConv1d({.index = 0,
                  .weight = conv_[0].get(),
                  .rows_per_plan_row = 2,
                  .x = mel_.Rows(0, 2 * rows),
                  .out = conv1_.Rows(0, 2 * rows)});
  s.CausalConv1d(
      {.index = 1, .weight = conv_[1].get(), .rows_per_plan_row = 2, .x = conv1_.Rows(0, 2 * rows), .out = x});
  EmitStack(s, PlanId::kEncoder, c.encoder, encoder_, x, rows, {});
  const View gain{gain_.data, DType::kF32, 1, c.encoder.dim, c.encoder.dim};
  s.RmsNorm({.x = x, .gain = gain, .scales = {}, .epsilon = 1e-5f, .out = encoder_out_.Rows(0, rows)});
  const View stacked{encoder_out_.data, encoder_out_.dtype, ticks, 4 * c.encoder.dim, 4 * c.encoder.dim};
  s.Linear({.x = stacked,
            .weight = adapter_[0].get(),
            .out = adapter_hidden_.Rows(0, ticks),
            .epilogue = backend::Epilogue::kGelu});
  s.Linear({.x = adapter_hidden_.Rows(0, ticks), .weight = adapter_[1].get(), .out = audio_.Rows(0, ticks)});
}

void SyntheticModel::EmitDecoder(Stream& s, int64_t rows) {
  const SyntheticConfig& c = config_;
  const View x = decoder_x_.Rows(0, rows);
  s.Embed({.table = head_.get(), .audio = audio_, .out = x});
  EmitStack(s, PlanId::kDecoder, c.decoder, decoder_, x, rows, delay_scales_);
  const View gain{gain_.data, DType::kF32, 1, c.decoder.dim, c.decoder.dim};
  s.Head({.x = x,
          .gain = gain,
          .epsilon = 1e-5f,
          .weight = head_.get(),
          .normed = View{normed_.data, normed_.dtype, rows, c.decoder.dim, c.decoder.dim},
          .logits = {},
          .token = token_.Rows(0, rows)});
}

void SyntheticModel::AddAngles(const SyntheticConfig::Stack& stack, int64_t index, BatchPlan* plan) {
  std::vector<float>& angles = angles_[{stack.head_dim, index}];
  const auto half = static_cast<size_t>(stack.head_dim / 2);
  if (angles.empty()) {
    angles.resize(2 * half);
    for (size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(index) * std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
      angles[i] = static_cast<float>(std::cos(angle));
      angles[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  const auto middle = angles.begin() + static_cast<std::ptrdiff_t>(half);
  plan->rope_cos.insert(plan->rope_cos.end(), angles.begin(), middle);
  plan->rope_sin.insert(plan->rope_sin.end(), middle, angles.end());
}

void SyntheticModel::Prepare(const std::vector<Row>& rows) {
  std::vector<EncodeItem> encode;
  std::vector<DecodeItem> decode;
  for (const Row& row : rows) {
    decode.push_back({.slot = row.slot, .first = row.tick, .audio_row = static_cast<int64_t>(encode.size())});
    encode.push_back({.slot = row.slot, .first_tick = row.tick});
  }
  PrepareEncode(encode);
  PrepareDecode(decode);
}

void SyntheticModel::PrepareEncode(const std::vector<EncodeItem>& items) {
  BatchPlan plan;
  float* mel = mel_values_.data();
  for (const EncodeItem& item : items) {
    const auto rows = static_cast<int32_t>(4 * item.ticks);
    VOXRT_CHECK(state_->Reserve(item.slot, KvId::kEncoder, 4 * item.first_tick + rows).ok());
    plan.groups.push_back(
        {.slot = item.slot, .row_begin = plan.rows, .row_count = rows, .first_index = 4 * item.first_tick});
    for (int i = 0; i < rows; ++i) AddAngles(config_.encoder, 4 * item.first_tick + i, &plan);
    plan.rows += rows;
    // The mel rows of a tick depend on slot and tick alone.
    for (int64_t tick = item.first_tick; tick < item.first_tick + item.ticks; ++tick) {
      uint64_t state = static_cast<uint64_t>(item.slot) * 1000003u + static_cast<uint64_t>(tick) * 7919u + 1;
      for (int64_t i = 0; i < 8 * config_.mel_bins; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        *mel++ = static_cast<float>(state >> 40) / 8388608.0f - 1.0f;
      }
    }
  }
  encoder_plan_ = std::move(plan);
}

void SyntheticModel::PrepareDecode(const std::vector<DecodeItem>& items) {
  BatchPlan plan;
  for (const DecodeItem& item : items) {
    const auto rows = static_cast<int32_t>(item.rows);
    VOXRT_CHECK(state_->Reserve(item.slot, KvId::kDecoder, item.first + rows).ok());
    plan.groups.push_back({.slot = item.slot, .row_begin = plan.rows, .row_count = rows, .first_index = item.first});
    for (int i = 0; i < rows; ++i) {
      AddAngles(config_.decoder, item.first + i, &plan);
      plan.token.push_back(item.first + i == 0 ? kFirstToken : i == 0 ? BatchPlan::kDeviceToken : kGuessedToken);
      plan.audio_row.push_back(static_cast<int32_t>(item.audio_row) + i);
      plan.delay_row.push_back(item.slot % 2);
      plan.head_rows.push_back(plan.rows + i);
    }
    plan.rows += rows;
  }
  decoder_plan_ = std::move(plan);
}

void SyntheticModel::RunPrepared(bool encoder, bool decoder) {
  const int64_t encoder_rows = encoder ? encoder_plan_.rows : 0;
  const int64_t decoder_rows = decoder ? decoder_plan_.rows : 0;
  if (encoder) {
    stream_->SetPlan(PlanId::kEncoder, encoder_plan_);
    stream_->Upload(mel_.Rows(0, 2 * encoder_rows), mel_values_.data());
  }
  if (decoder) stream_->SetPlan(PlanId::kDecoder, decoder_plan_);
  stream_->Run({.kind = encoder && decoder ? backend::RunKind::kLiveTick
                        : encoder          ? backend::RunKind::kEncode
                                           : backend::RunKind::kDecode,
                .encoder_rows = encoder_rows,
                .decoder_rows = decoder_rows,
                .head_rows = decoder_rows},
               [&](Stream& s) {
                 if (encoder) EmitEncoder(s, encoder_rows / 4);
                 if (decoder) EmitDecoder(s, decoder_rows);
               });
}

Status SyntheticModel::Tokens(std::vector<int32_t>* tokens) {
  tokens->resize(static_cast<size_t>(decoder_plan_.rows));
  return stream_->Readback(token_.Rows(0, decoder_plan_.rows), tokens->data());
}

Status SyntheticModel::Hidden(int64_t rows, std::vector<float>* values) {
  values->resize(static_cast<size_t>(rows * config_.decoder.dim));
  return stream_->Readback(decoder_x_.Rows(0, rows), values->data());
}

}  // namespace voxrt::bench
