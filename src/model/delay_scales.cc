#include "model/delay_scales.h"

#include <cmath>

#include "model/names.h"

namespace voxrt::model {
namespace {

float Gelu(float x) { return static_cast<float>(0.5 * x * (1.0 + std::erf(static_cast<double>(x) * std::sqrt(0.5)))); }

// matrix [rows, cols] times vector.
std::vector<float> Multiply(const std::vector<float>& matrix, const std::vector<float>& vector) {
  const size_t cols = vector.size();
  std::vector<float> out(matrix.size() / cols);
  for (size_t row = 0; row < out.size(); ++row) {
    double sum = 0.0;
    for (size_t col = 0; col < cols; ++col) sum += static_cast<double>(matrix[row * cols + col]) * vector[col];
    out[row] = static_cast<float>(sum);
  }
  return out;
}

}  // namespace

std::vector<float> DelayEmbedding(int delay_tokens, int64_t dim) {
  const int64_t half = dim / 2;
  std::vector<float> out(static_cast<size_t>(dim));
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) / static_cast<float>(half);
    const auto frequency = static_cast<float>(std::exp(static_cast<double>(exponent)));
    const float angle = static_cast<float>(delay_tokens) * frequency;
    out[static_cast<size_t>(i)] = static_cast<float>(std::cos(static_cast<double>(angle)));
    out[static_cast<size_t>(half + i)] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
  return out;
}

Result<std::unique_ptr<DelayScales>> DelayScales::Create(std::shared_ptr<const weights::Checkpoint> checkpoint,
                                                         backend::Device& device) {
  std::unique_ptr<DelayScales> scales(new DelayScales(std::move(checkpoint), device));
  const weights::StackConfig& decoder = scales->checkpoint_->config().decoder;
  for (int layer = 0; layer < decoder.layers; ++layer) {
    VOXRT_ASSIGN_OR_RETURN(auto table, device.Allocate(kMaxDelayTokens, decoder.dim, quant::DType::kF32));
    scales->tables_.push_back(std::move(table));
  }
  return scales;
}

Status DelayScales::Ensure(int delay_tokens) {
  VOXRT_CHECK(delay_tokens >= kMinDelayTokens && delay_tokens <= kMaxDelayTokens);
  const std::lock_guard lock(mutex_);
  if (ready_[delay_tokens]) return {};
  const std::vector<float> embedding = DelayEmbedding(delay_tokens, checkpoint_->config().decoder.dim);
  for (size_t layer = 0; layer < tables_.size(); ++layer) {
    const int index = static_cast<int>(layer);
    std::vector<float> hidden =
        Multiply(checkpoint_->Values(DecoderLayerName(index, "ada_rms_norm_t_cond.0.weight")), embedding);
    for (float& value : hidden) value = Gelu(value);
    std::vector<float> factor =
        Multiply(checkpoint_->Values(DecoderLayerName(index, "ada_rms_norm_t_cond.2.weight")), hidden);
    for (float& value : factor) value += 1.0f;
    VOXRT_RETURN_IF_ERROR(device_.Write(tables_[layer]->view().Rows(Row(delay_tokens), 1), factor.data()));
  }
  ready_[delay_tokens] = true;
  return {};
}

}  // namespace voxrt::model
