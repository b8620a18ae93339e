// The delay-conditioned factors of the decoder's FFN norms (docs/model.md 7): s[layer] = 1 + B gelu(A t_cond(delay)).
// They depend on the delay alone, are computed in fp32 once when a delay is first used, and stay on the device: one
// table [delays, dim] a layer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device.h"
#include "base/status.h"
#include "weights/checkpoint.h"

namespace voxrt::model {

inline constexpr int kTickMs = 80;
inline constexpr int kMinDelayTokens = 1;
inline constexpr int kMaxDelayTokens = 30;

// Sine/cosine embedding of a delay in tokens: [dim], cos half first.
std::vector<float> DelayEmbedding(int delay_tokens, int64_t dim);

class DelayScales {
 public:
  static Result<std::unique_ptr<DelayScales>> Create(std::shared_ptr<const weights::Checkpoint> checkpoint,
                                                     backend::Device& device);

  // Computes the factors of a delay if they are not there yet. Thread-safe.
  Status Ensure(int delay_tokens);
  // Row of every layer's table for a delay.
  static int32_t Row(int delay_tokens) { return delay_tokens - kMinDelayTokens; }
  // F32 [kMaxDelayTokens, dim].
  const backend::View& table(int layer) const { return tables_[static_cast<size_t>(layer)]->view(); }

 private:
  DelayScales(std::shared_ptr<const weights::Checkpoint> checkpoint, backend::Device& device)
      : checkpoint_(std::move(checkpoint)), device_(device) {}

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  backend::Device& device_;
  std::vector<std::unique_ptr<backend::Buffer>> tables_;
  std::mutex mutex_;
  bool ready_[kMaxDelayTokens + 1] = {};
};

}  // namespace voxrt::model
