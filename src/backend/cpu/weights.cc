#include "backend/cpu/weights.h"

#include <string>

#include "backend/checks.h"
#include "backend/cpu/kernels.h"
#include "base/check.h"
#include "base/function_ref.h"

namespace voxrt::backend::cpu {
namespace {

void ForRows(int64_t rows, base::ThreadPool& pool, base::FunctionRef<void(int64_t row)> body) {
  pool.Run([&](int worker, int workers) {
    for (int64_t n = rows * worker / workers; n < rows * (worker + 1) / workers; ++n) body(n);
  });
}

bool IsFloat(quant::DType dtype) {
  return dtype == quant::DType::kF32 || dtype == quant::DType::kF16 || dtype == quant::DType::kBF16;
}

}  // namespace

bool SupportsFormat(const quant::Format& format) {
  const bool grouped = format.group == 32 || format.group == 64 || format.group == 128 || format.group == 256;
  switch (format.kind) {
    case quant::FormatKind::kFloat:
      return IsFloat(format.dtype) && !format.int8_activations;
    case quant::FormatKind::kInt4:
      return grouped;
    case quant::FormatKind::kInt4Tile:
      return grouped && !format.int8_activations;
    case quant::FormatKind::kInt8:
      return grouped || format.group == 0;
  }
  return false;
}

Result<std::unique_ptr<CpuLinear>> CpuLinear::Make(const LinearSpec& spec, bool head_scan, base::ThreadPool& pool) {
  VOXRT_RETURN_IF_ERROR(Validate(spec));
  int64_t rows = 0;
  const int64_t cols = spec.blocks.front().weight.cols;
  for (const LinearBlock& block : spec.blocks) {
    if (!SupportsFormat(block.weight.format)) {
      return Status(StatusCode::kInvalidModel, spec.name + ": the cpu backend cannot multiply with " +
                                                   quant::FormatName(block.weight.format) + " weights");
    }
    const quant::Format& first = spec.blocks.front().weight.format;
    const bool alike = block.weight.format.int8_activations == first.int8_activations &&
                       (block.weight.format.kind == first.kind || !first.int8_activations);
    if (!alike || (spec.role == LinearRole::kGateUp && block.weight.format != first)) {
      return Status(StatusCode::kInvalidModel, spec.name + ": blocks are " + quant::FormatName(first) + " and " +
                                                   quant::FormatName(block.weight.format) + ", expected one format");
    }
    rows += block.weight.rows;
  }
  auto linear = std::make_unique<CpuLinear>(rows, cols, spec.role);
  int64_t row_begin = 0;
  for (const LinearBlock& block : spec.blocks) {
    linear->blocks_.push_back(
        {.weight = block.weight, .bias = block.bias.empty() ? nullptr : block.bias.data(), .row_begin = row_begin});
    linear->PrepareBlock(linear->blocks_.back(), pool);
    row_begin += block.weight.rows;
  }
  const Block& first = linear->blocks_.front();
  if (head_scan && spec.role == LinearRole::kHead && linear->blocks_.size() == 1 && first.bias == nullptr) {
    linear->scan_ = HeadScan::Make(first.weight, pool);
  }
  return linear;
}

void CpuLinear::PrepareBlock(Block& block, base::ThreadPool& pool) {
  const quant::HostLinear& w = block.weight;
  if (w.format.kind == quant::FormatKind::kInt4Tile) return UntileBlock(block, pool);
  if (!w.format.int8_activations) return;
  sums_.push_back(std::make_unique<float[]>(static_cast<size_t>(w.rows)));
  LinearJob job;
  SetWeight(block, job);
  float* sums = sums_.back().get();
  ForRows(w.rows, pool, [&](int64_t n) { sums[n] = WeightSum(job, n); });
  block.sums = sums;
}

// docs/model.md 12.1 to the order of 12.7, scales and zeros to [rows, groups] each.
void CpuLinear::UntileBlock(Block& block, base::ThreadPool& pool) {
  quant::HostLinear& w = block.weight;
  const int64_t groups = w.cols / w.format.group;
  codes_.push_back(std::make_unique<uint8_t[]>(static_cast<size_t>(w.rows * w.cols / 2)));
  scales_.push_back(std::make_unique<uint16_t[]>(static_cast<size_t>(2 * w.rows * groups)));
  uint8_t* codes = codes_.back().get();
  uint16_t* scales = scales_.back().get();
  const auto* words = static_cast<const uint32_t*>(w.data);
  ForRows(w.rows, pool, [&](int64_t n) {
    for (int64_t k = 0; k < w.cols; k += 32) {
      // The 32 columns of a run lie in words of four lanes: lane t holds columns 2t and 2t + 1 of each eighth.
      const uint32_t* run = words + (((n / 8) * (w.cols / 128) + k / 128) * 32 + (n % 8) * 4) * 4 + k % 128 / 32;
      uint8_t* out = codes + n * (w.cols / 2) + k / 2;
      for (int64_t t = 0; t < 4; ++t) {
        const uint32_t word = run[4 * t];
        for (int64_t odd = 0; odd < 2; ++odd) {
          const uint32_t nibbles = word >> (16 * odd);  // columns 0, 8, 16, 24 of 2t + odd
          out[2 * t + odd] = static_cast<uint8_t>((nibbles & 15u) | ((nibbles >> 8 & 15u) << 4));
          out[8 + 2 * t + odd] = static_cast<uint8_t>((nibbles >> 4 & 15u) | ((nibbles >> 12 & 15u) << 4));
        }
      }
    }
    for (int64_t g = 0; g < groups; ++g) {
      scales[n * groups + g] = w.scale[(g * w.rows + n) * 2];
      scales[(w.rows + n) * groups + g] = w.scale[(g * w.rows + n) * 2 + 1];
    }
  });
  w.data = codes;
  w.scale = scales;
  block.zero = scales + w.rows * groups;
}

void CpuLinear::ReadRow(int64_t row, float* out) const {
  VOXRT_CHECK(row >= 0 && row < rows());
  for (const Block& block : blocks_) {
    if (row >= block.row_begin + block.weight.rows) continue;
    const int64_t at = row - block.row_begin;
    if (block.weight.format.kind != quant::FormatKind::kFloat) {
      LinearJob job;
      SetWeight(block, job);
      return DequantizeRow(job, at, out);
    }
    const auto bytes = static_cast<int64_t>(quant::DTypeBytes(block.weight.format.dtype));
    WidenRow(static_cast<const std::byte*>(block.weight.data) + at * cols() * bytes, block.weight.format.dtype, cols(),
             out);
    return;
  }
}

void SetWeight(const CpuLinear::Block& block, LinearJob& job) {
  job.format = block.weight.format;
  job.weight = block.weight.data;
  job.scale = block.weight.scale;
  job.zero = block.zero;
  job.sums = block.sums;
  job.cols = block.weight.cols;
  job.bias = block.bias;
}

void SetPair(const CpuLinear::Block& block, LinearJob& job) {
  job.pair = block.weight.data;
  job.pair_scale = block.weight.scale;
  job.pair_zero = block.zero;
  job.pair_sums = block.sums;
  job.pair_bias = block.bias;
}

Result<std::unique_ptr<CpuConv>> CpuConv::Make(const ConvSpec& spec, base::ThreadPool& pool) {
  VOXRT_RETURN_IF_ERROR(Validate(spec));
  auto conv = std::make_unique<CpuConv>(spec.out_channels, spec.in_channels, spec.stride);
  LinearBlock block;
  block.weight = {.format = {.kind = quant::FormatKind::kFloat, .dtype = spec.dtype},
                  .rows = spec.out_channels,
                  .cols = spec.in_channels * 3,
                  .data = spec.weight,
                  .scale = nullptr};
  block.bias = spec.bias;
  VOXRT_ASSIGN_OR_RETURN(conv->linear_, CpuLinear::Make({spec.name, LinearRole::kPlain, {block}}, false, pool));
  return conv;
}

const CpuLinear& AsCpu(const PreparedLinear* linear) {
  const auto* cpu = dynamic_cast<const CpuLinear*>(linear);
  VOXRT_CHECK(cpu != nullptr);  // else it was prepared by another device
  return *cpu;
}

const CpuConv& AsCpu(const PreparedConv* conv) {
  const auto* cpu = dynamic_cast<const CpuConv*>(conv);
  VOXRT_CHECK(cpu != nullptr);
  return *cpu;
}

}  // namespace voxrt::backend::cpu
