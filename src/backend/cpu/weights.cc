#include "backend/cpu/weights.h"

#include <string>

#include "backend/checks.h"
#include "backend/cpu/kernels.h"
#include "base/check.h"

namespace voxrt::backend::cpu {
namespace {

bool IsFloat(quant::DType dtype) {
  return dtype == quant::DType::kF32 || dtype == quant::DType::kF16 || dtype == quant::DType::kBF16;
}

}  // namespace

bool SupportsFormat(const quant::Format& format) {
  return format.kind == quant::FormatKind::kFloat && IsFloat(format.dtype);
}

Result<std::unique_ptr<CpuLinear>> CpuLinear::Make(const LinearSpec& spec) {
  VOXRT_RETURN_IF_ERROR(Validate(spec));
  int64_t rows = 0;
  const int64_t cols = spec.blocks.front().weight.cols;
  for (const LinearBlock& block : spec.blocks) {
    if (!SupportsFormat(block.weight.format)) {
      return Status(StatusCode::kInvalidModel, spec.name + ": the cpu backend cannot multiply with " +
                                                   quant::FormatName(block.weight.format) + " weights");
    }
    rows += block.weight.rows;
  }
  if (spec.role == LinearRole::kGateUp && spec.blocks[0].weight.format != spec.blocks[1].weight.format) {
    return Status(StatusCode::kInvalidModel, spec.name + ": gate is " + FormatName(spec.blocks[0].weight.format) +
                                                 " and up is " + FormatName(spec.blocks[1].weight.format) +
                                                 ", expected one format");
  }
  auto linear = std::make_unique<CpuLinear>(rows, cols, spec.role);
  int64_t row_begin = 0;
  for (const LinearBlock& block : spec.blocks) {
    linear->blocks_.push_back({block.weight, block.bias.empty() ? nullptr : block.bias.data(), row_begin});
    row_begin += block.weight.rows;
  }
  return linear;
}

void CpuLinear::ReadRow(int64_t row, float* out) const {
  VOXRT_CHECK(row >= 0 && row < rows());
  for (const Block& block : blocks_) {
    if (row >= block.row_begin + block.weight.rows) continue;
    const int64_t at = row - block.row_begin;
    if (block.weight.format.kind != quant::FormatKind::kFloat) return quant::DequantizeRow(block.weight, at, out);
    const auto bytes = static_cast<int64_t>(quant::DTypeBytes(block.weight.format.dtype));
    WidenRow(static_cast<const std::byte*>(block.weight.data) + at * cols() * bytes, block.weight.format.dtype, cols(),
             out);
    return;
  }
}

Result<std::unique_ptr<CpuConv>> CpuConv::Make(const ConvSpec& spec) {
  VOXRT_RETURN_IF_ERROR(Validate(spec));
  auto conv = std::make_unique<CpuConv>(spec.out_channels, spec.in_channels, spec.stride);
  LinearBlock block;
  block.weight = {.format = {.kind = quant::FormatKind::kFloat, .dtype = spec.dtype},
                  .rows = spec.out_channels,
                  .cols = spec.in_channels * 3,
                  .data = spec.weight,
                  .scale = nullptr};
  block.bias = spec.bias;
  VOXRT_ASSIGN_OR_RETURN(conv->linear_, CpuLinear::Make({spec.name, LinearRole::kPlain, {block}}));
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
