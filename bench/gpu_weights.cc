#include "gpu_weights.h"

#include <algorithm>

namespace voxrt::bench {

using quant::FormatKind;

RandomWeights::RandomWeights(int64_t most_bytes, int64_t most_scales, bool floats)
    : random_(static_cast<size_t>(most_bytes) + (64u << 20)),
      scales_(static_cast<size_t>(most_scales)),
      scale_pairs_(2 * scales_.size()) {
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i + 8 <= random_.size(); i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    uint64_t word = state;
    // bf16 weights: sign and mantissa random, exponents 2^-7 .. 2^-6.
    if (floats) word = (word & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
    std::copy_n(reinterpret_cast<const uint8_t*>(&word), 8, random_.data() + i);
  }
  for (size_t i = 0; i < scales_.size(); ++i) {
    scales_[i] = quant::F32ToBF16((floats ? 1e-4f : 2e-4f) + 1e-6f * static_cast<float>(i % 97));
    scale_pairs_[2 * i] = quant::F32ToBF16(3e-3f + 1e-5f * static_cast<float>(i % 89));
    scale_pairs_[2 * i + 1] = quant::F32ToBF16(1e-5f * static_cast<float>(static_cast<int>(i % 61) - 30));
  }
}

Result<std::unique_ptr<backend::PreparedLinear>> RandomWeights::Prepare(backend::Device& device, const Spec& spec,
                                                                        int64_t* bytes) {
  backend::LinearSpec linear{.name = spec.name, .role = spec.role, .blocks = {}};
  const quant::Format& format = spec.format;
  for (const int64_t n : spec.rows) {
    const int64_t data_bytes = format.kind == FormatKind::kFloat  ? n * spec.cols * 2
                               : format.kind == FormatKind::kInt8 ? n * spec.cols
                                                                  : n * spec.cols / 2;
    // Each weight is another stretch.
    next_offset_ =
        (next_offset_ + 1048583 * 16) % static_cast<uint64_t>(static_cast<int64_t>(random_.size()) - data_bytes);
    next_offset_ &= ~uint64_t{15};
    quant::HostLinear weight{
        .format = format, .rows = n, .cols = spec.cols, .data = random_.data() + next_offset_, .scale = nullptr};
    const int64_t groups = format.group == 0 ? 1 : spec.cols / format.group;
    if (format.kind == FormatKind::kInt4Tile) weight.scale = scale_pairs_.data();
    if (format.kind == FormatKind::kInt4 || format.kind == FormatKind::kInt8) weight.scale = scales_.data();
    *bytes += data_bytes + (format.kind == FormatKind::kInt4Tile ? n * groups * 4
                            : format.kind == FormatKind::kFloat  ? 0
                                                                 : n * groups * 2);
    biases_.emplace_back(spec.bias ? static_cast<size_t>(n) : 0, 0.01f);
    linear.blocks.push_back({weight, biases_.back()});
  }
  return device.Prepare(linear);
}

}  // namespace voxrt::bench
