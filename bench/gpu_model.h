// A synthetic Voxtral of any size on a device, through the backend contract alone: random weights in any format, and
// the operations of one live tick. For timing and for checks that need no checkpoint (batch = alone, graph = eager).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/stream.h"
#include "gpu_weights.h"

namespace voxrt::bench {

struct SyntheticConfig {
  struct Stack {
    int64_t dim = 0;
    int layers = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int64_t hidden = 0;
    int64_t window = 0;
  };
  Stack encoder{1280, 32, 32, 32, 64, 5120, 750};
  Stack decoder{3072, 26, 32, 8, 128, 9216, 8192};
  int64_t vocab = 131072;
  int64_t mel_bins = 128;
  quant::Format linear{.kind = quant::FormatKind::kInt4Tile, .group = 128};
  quant::Format head{.kind = quant::FormatKind::kInt8, .group = 0};
  quant::DType kv = quant::DType::kBF16;
  int max_sessions = 1;
  int64_t max_encoder_rows = 4;
  int64_t max_decoder_rows = 1;
  int64_t max_item_rows = 8;  // decoder rows of one session in one call
};

// What a stack reads each tick, bytes (weights of one stack, K/V of one session at w positions).
struct SyntheticBytes {
  int64_t encoder_weights = 0;  // stem and adapter included
  int64_t decoder_weights = 0;
  int64_t head_weights = 0;
};

class SyntheticModel {
 public:
  static Result<std::unique_ptr<SyntheticModel>> Create(backend::Device& device, const SyntheticConfig& config);

  struct Row {
    int slot = 0;
    int64_t tick = 0;  // encoder rows 4 tick .. 4 tick + 3, decoder row tick
  };
  // One live tick for these sessions; parts: encoder and/or decoder. Prepare makes what a tick of these rows needs on
  // the host (mel rows, plans with rotary angles), RunPrepared is what an engine does with it.
  void Tick(const std::vector<Row>& rows, bool encoder = true, bool decoder = true) {
    Prepare(rows);
    RunPrepared(encoder, decoder);
  }
  void Prepare(const std::vector<Row>& rows);
  void RunPrepared(bool encoder, bool decoder);

  // The same for calls of any shape, as the engine makes them for long queues.
  struct EncodeItem {
    int slot = 0;
    int64_t first_tick = 0;
    int64_t ticks = 1;
  };
  struct DecodeItem {
    int slot = 0;
    int64_t first = 0;  // position of the first row
    int64_t rows = 1;   // beyond the first guessed ones, with a head too
    int64_t audio_row = 0;
  };
  void PrepareEncode(const std::vector<EncodeItem>& items);
  void PrepareDecode(const std::vector<DecodeItem>& items);

  // Waits for the tokens of the last call with a decoder part, one for each of its rows.
  Status Tokens(std::vector<int32_t>* tokens);
  // Residual rows of the decoder before the final norm, [rows, dim] (before the head reads them), after a Tick.
  Status Hidden(int64_t rows, std::vector<float>* values);
  // New session state with these caches, and a stream on it; the previous ones are closed.
  Status Restart(quant::DType kv);
  Status Restart() { return Restart(config_.kv); }

  backend::Stream& stream() { return *stream_; }
  backend::SessionState& state() { return *state_; }
  const SyntheticBytes& bytes() const { return bytes_; }
  const SyntheticConfig& config() const { return config_; }

 private:
  struct Layer {
    std::unique_ptr<backend::PreparedLinear> qkv, output, gate_up, down;
  };

  SyntheticModel(backend::Device& device, const SyntheticConfig& config) : device_(device), config_(config) {}
  Status Init();
  Result<std::unique_ptr<backend::PreparedLinear>> Weight(const char* name, backend::LinearRole role,
                                                          const quant::Format& format, const std::vector<int64_t>& rows,
                                                          int64_t cols, bool bias, int64_t* bytes);
  Result<backend::View> NewBuffer(int64_t rows, int64_t cols, quant::DType dtype, float value = 0.0f);
  Status InitStack(const SyntheticConfig::Stack& stack, bool bias, std::vector<Layer>* layers, int64_t* bytes);
  void EmitStack(backend::Stream& s, backend::PlanId plan, const SyntheticConfig::Stack& stack,
                 const std::vector<Layer>& layers, const backend::View& x, int64_t rows, const backend::View& scales);
  // Appends the rotary angles of a position.
  void AddAngles(const SyntheticConfig::Stack& stack, int64_t index, backend::BatchPlan* plan);
  void EmitEncoder(backend::Stream& s, int64_t ticks);
  void EmitDecoder(backend::Stream& s, int64_t rows);

  backend::Device& device_;
  SyntheticConfig config_;
  SyntheticBytes bytes_;
  std::unique_ptr<RandomWeights> weights_;
  std::vector<uint16_t> conv_weight_;
  std::vector<float> conv_bias_;
  std::unique_ptr<backend::SessionState> state_;
  std::unique_ptr<backend::Stream> stream_;
  std::vector<std::unique_ptr<backend::Buffer>> buffers_;
  std::vector<Layer> encoder_, decoder_;
  std::unique_ptr<backend::PreparedConv> conv_[2];
  std::unique_ptr<backend::PreparedLinear> adapter_[2], head_;
  backend::View mel_, conv1_, encoder_x_, encoder_out_, adapter_hidden_, audio_, decoder_x_, token_;
  backend::View normed_, qkv_, attended_, hidden_, gain_, delay_scales_;
  std::vector<float> mel_values_;
  backend::BatchPlan encoder_plan_, decoder_plan_;
  std::map<std::pair<int, int64_t>, std::vector<float>> angles_;  // (head size, position): cosines, then sines
};

}  // namespace voxrt::bench
