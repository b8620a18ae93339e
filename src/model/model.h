// Model: the network of docs/model.md written once, in operations of the backend contract. Weights are bound at Create
// and immutable; a Workspace holds the scratch of one stream; Encode and Decode emit the operations of a call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/stream.h"
#include "base/status.h"
#include "model/delay_scales.h"
#include "model/rope.h"
#include "weights/checkpoint.h"

namespace voxrt::model {

// Most rows of a call; buffers are sized by them.
struct Limits {
  int64_t encoder_ticks = 1;  // 4 encoder rows, 1 adapter row each
  int64_t decoder_rows = 1;
  int64_t head_rows = 1;
  int64_t sessions = 1;  // most sessions in a live tick
};

class Model {
 public:
  // Binds every weight of the checkpoint to the device. kInvalidModel / kResourceExhausted / kInvalidArgument (a format
  // that the device cannot multiply, by name).
  static Result<std::unique_ptr<Model>> Create(std::shared_ptr<const weights::Checkpoint> checkpoint,
                                               backend::Device& device);

  const weights::ModelConfig& config() const { return checkpoint_->config(); }
  const RopePhases& encoder_rope() const { return encoder_rope_; }
  const RopePhases& decoder_rope() const { return decoder_rope_; }
  DelayScales& delays() const { return *delays_; }

  // Device state for `max_sessions` slots whose decoder calls have at most `decoder_rows` rows of one session.
  backend::SessionStateSpec StateSpec(int max_sessions, int64_t decoder_rows, quant::DType kv_dtype) const;

 private:
  friend class Forward;

  struct Layer {
    std::unique_ptr<backend::Buffer> attention_gain;  // F32 [1, dim]
    std::unique_ptr<backend::Buffer> ffn_gain;        // F32 [1, dim]
    std::unique_ptr<backend::PreparedLinear> qkv;
    std::unique_ptr<backend::PreparedLinear> output;
    std::unique_ptr<backend::PreparedLinear> gate_up;
    std::unique_ptr<backend::PreparedLinear> down;
  };

  Model(std::shared_ptr<const weights::Checkpoint> checkpoint, backend::Device& device);
  Status Bind();
  Status BindLayer(bool encoder, int index, Layer* layer);
  Result<std::unique_ptr<backend::PreparedConv>> BindConv(int index);
  Result<std::unique_ptr<backend::Buffer>> BindGain(const std::string& name);
  // A linear of one or more stored weights; biases where the checkpoint has them.
  Result<std::unique_ptr<backend::PreparedLinear>> BindLinear(backend::LinearRole role,
                                                              const std::vector<std::string>& names);
  std::span<const float> Keep(std::vector<float> values);

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  backend::Device& device_;
  RopePhases encoder_rope_;
  RopePhases decoder_rope_;
  backend::RopePairing pairing_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;  // biases that backends borrow

  std::unique_ptr<backend::PreparedConv> convs_[2];
  std::vector<Layer> encoder_;
  std::vector<Layer> decoder_;
  std::unique_ptr<backend::Buffer> encoder_gain_;
  std::unique_ptr<backend::Buffer> decoder_gain_;
  std::unique_ptr<backend::PreparedLinear> adapter_[2];
  std::unique_ptr<backend::PreparedLinear> embedding_;
  std::unique_ptr<backend::PreparedLinear> own_head_;  // null when tied
  std::unique_ptr<DelayScales> delays_;
};

}  // namespace voxrt::model
