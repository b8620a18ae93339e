// ModelConfig: every dimension of a Voxtral Realtime checkpoint, read from params.json (Mistral) or config.json
// (Hugging Face). Sizes come from here, never from macros. Source: docs/model.md 9.1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::weights {

struct StackConfig {  // encoder or decoder
  int64_t dim = 0;
  int layers = 0;
  int head_dim = 0;
  int64_t hidden_dim = 0;  // FFN
  int heads = 0;
  int kv_heads = 0;
  double rope_theta = 1e6;
  float norm_epsilon = 1e-5f;
  int64_t window = 0;  // rows a row sees, itself included

  bool operator==(const StackConfig&) const = default;
};

struct AudioConfig {
  int sample_rate = 16000;
  int mel_bins = 128;
  int hop_samples = 160;
  int window_samples = 400;  // = FFT size
  float log_mel_max = 1.5f;
  int samples_per_token = 1280;  // one tick
  int mel_per_token = 8;
  int encoder_per_token = 4;  // = downsample factor

  bool operator==(const AudioConfig&) const = default;
};

struct ModelConfig {
  AudioConfig audio;
  StackConfig encoder;
  StackConfig decoder;
  int64_t vocab_size = 0;
  int64_t ada_dim = 0;  // hidden width of the delay MLP

  bool operator==(const ModelConfig&) const = default;
};

// Parse params.json / config.json (+ processor_config.json, may be empty). kInvalidModel names the field, what was
// found and what was expected; a Voxtral of another kind (Mini-3B-2507) is named as such. Every size is positive and so
// bounded that products of two of them fit 64 bits.
Result<ModelConfig> ParseMistralParams(std::string_view params_json);
// config.json does not know the width of the delay MLP: `ada_dim` stays 0 and is taken from the tensors.
Result<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json, std::string_view processor_config_json);
// The params.json that ParseMistralParams reads back as `config`.
std::string WriteMistralParams(const ModelConfig& config);
// The config.json that ParseHuggingFaceConfig reads back as `config`, except `ada_dim` and `log_mel_max`.
std::string WriteHuggingFaceConfig(const ModelConfig& config);

}  // namespace voxrt::weights
