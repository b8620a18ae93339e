// Binding of a checkpoint's tensors to a device.
#include "model/model.h"

#include <fmt/format.h>

#include "model/names.h"

namespace voxrt::model {

using backend::LinearRole;

Model::Model(std::shared_ptr<const weights::Checkpoint> checkpoint, backend::Device& device)
    : checkpoint_(std::move(checkpoint)),
      device_(device),
      encoder_rope_(config().encoder.head_dim, config().encoder.rope_theta),
      decoder_rope_(config().decoder.head_dim, config().decoder.rope_theta),
      pairing_(checkpoint_->rope_rows() == weights::RopeRows::kHalf ? backend::RopePairing::kHalf
                                                                    : backend::RopePairing::kAdjacent) {}

Result<std::unique_ptr<Model>> Model::Create(std::shared_ptr<const weights::Checkpoint> checkpoint,
                                             backend::Device& device) {
  std::unique_ptr<Model> model(new Model(std::move(checkpoint), device));
  VOXRT_RETURN_IF_ERROR(model->Bind());
  return model;
}

Status Model::Bind() {
  for (int i = 0; i < 2; ++i) {
    VOXRT_ASSIGN_OR_RETURN(convs_[i], BindConv(i));
  }
  encoder_.resize(static_cast<size_t>(config().encoder.layers));
  for (int i = 0; i < config().encoder.layers; ++i) {
    VOXRT_RETURN_IF_ERROR(BindLayer(true, i, &encoder_[static_cast<size_t>(i)]));
  }
  VOXRT_ASSIGN_OR_RETURN(encoder_gain_, BindGain(EncoderName("transformer.norm.weight")));
  for (int i = 0; i < 2; ++i) {
    const std::string name =
        ModuleName(i == 0 ? "audio_language_projection.0.weight" : "audio_language_projection.2.weight");
    VOXRT_ASSIGN_OR_RETURN(adapter_[i], BindLinear(LinearRole::kPlain, {name}));
  }
  decoder_.resize(static_cast<size_t>(config().decoder.layers));
  for (int i = 0; i < config().decoder.layers; ++i) {
    VOXRT_RETURN_IF_ERROR(BindLayer(false, i, &decoder_[static_cast<size_t>(i)]));
  }
  VOXRT_ASSIGN_OR_RETURN(decoder_gain_, BindGain("norm.weight"));
  VOXRT_ASSIGN_OR_RETURN(embedding_, BindLinear(LinearRole::kHead, {std::string(weights::kEmbeddingName)}));
  if (checkpoint_->Has(weights::kHeadName)) {
    VOXRT_ASSIGN_OR_RETURN(own_head_, BindLinear(LinearRole::kHead, {std::string(weights::kHeadName)}));
  }
  VOXRT_ASSIGN_OR_RETURN(delays_, DelayScales::Create(checkpoint_, device_));
  return {};
}

Status Model::BindLayer(bool encoder, int index, Layer* layer) {
  const auto name = [&](const std::string& rest) {
    return encoder ? EncoderLayerName(index, rest) : DecoderLayerName(index, rest);
  };
  VOXRT_ASSIGN_OR_RETURN(layer->attention_gain, BindGain(name("attention_norm.weight")));
  VOXRT_ASSIGN_OR_RETURN(layer->ffn_gain, BindGain(name("ffn_norm.weight")));
  VOXRT_ASSIGN_OR_RETURN(
      layer->qkv, BindLinear(LinearRole::kQkv,
                             {name("attention.wq.weight"), name("attention.wk.weight"), name("attention.wv.weight")}));
  VOXRT_ASSIGN_OR_RETURN(layer->output, BindLinear(LinearRole::kPlain, {name("attention.wo.weight")}));
  VOXRT_ASSIGN_OR_RETURN(layer->gate_up, BindLinear(LinearRole::kGateUp,
                                                    {name("feed_forward.w1.weight"), name("feed_forward.w3.weight")}));
  VOXRT_ASSIGN_OR_RETURN(layer->down, BindLinear(LinearRole::kPlain, {name("feed_forward.w2.weight")}));
  return {};
}

Result<std::unique_ptr<backend::PreparedConv>> Model::BindConv(int index) {
  const std::string base = EncoderName(fmt::format("conv_layers.{}.conv.", index));
  const weights::Tensor& tensor = checkpoint_->tensors().at(base + "weight");
  return device_.PrepareConv({.name = base + "weight",
                              .weight = tensor.data,
                              .dtype = tensor.dtype,
                              .out_channels = tensor.shape[0],
                              .in_channels = tensor.shape[1],
                              .stride = index + 1,
                              .bias = Keep(checkpoint_->Values(base + "bias"))});
}

Result<std::unique_ptr<backend::Buffer>> Model::BindGain(const std::string& name) {
  const std::vector<float> values = checkpoint_->Values(name);
  VOXRT_ASSIGN_OR_RETURN(auto buffer, device_.Allocate(1, static_cast<int64_t>(values.size()), quant::DType::kF32));
  VOXRT_RETURN_IF_ERROR(device_.Write(buffer->view(), values.data()));
  return buffer;
}

Result<std::unique_ptr<backend::PreparedLinear>> Model::BindLinear(LinearRole role,
                                                                   const std::vector<std::string>& names) {
  backend::LinearSpec spec{.name = names.front(), .role = role, .blocks = {}};
  for (const std::string& name : names) {
    backend::LinearBlock block{.weight = checkpoint_->Linear(name), .bias = {}};
    if (!device_.Supports(block.weight.format)) {
      return Status(
          StatusCode::kInvalidModel,
          fmt::format(
              "tensor {} is stored as {}, which the {} backend cannot multiply; choose another backend or export "
              "the model in another format",
              name, quant::FormatName(block.weight.format), device_.info().backend));
    }
    const std::string bias = name.substr(0, name.size() - std::string_view("weight").size()) + "bias";
    if (checkpoint_->Has(bias)) block.bias = Keep(checkpoint_->Values(bias));
    spec.blocks.push_back(block);
  }
  return device_.Prepare(spec);
}

std::span<const float> Model::Keep(std::vector<float> values) {
  kept_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
  return *kept_.back();
}

backend::SessionStateSpec Model::StateSpec(int max_sessions, int64_t decoder_rows, quant::DType kv_dtype) const {
  const auto kv = [&](const weights::StackConfig& stack, int64_t max_rows) {
    return backend::KvSpec{.layers = stack.layers,
                           .kv_heads = stack.kv_heads,
                           .head_dim = stack.head_dim,
                           .window = stack.window,
                           .max_rows = max_rows,
                           .dtype = kv_dtype};
  };
  return {.max_sessions = max_sessions,
          .encoder = kv(config().encoder, config().audio.encoder_per_token),
          .decoder = kv(config().decoder, decoder_rows),
          .conv_channels = {config().audio.mel_bins, config().encoder.dim}};
}

}  // namespace voxrt::model
