#include "quant/format.h"

#include <cmath>

#include "base/check.h"

namespace voxrt::quant {
namespace {

// One group of a tile-packed or canonical row shares a scale; 0 = the whole row.
int64_t GroupOf(const HostLinear& weight, int64_t col) {
  return weight.format.group == 0 ? 0 : col / weight.format.group;
}

int64_t GroupsPerRow(const HostLinear& weight) {
  return weight.format.group == 0 ? 1 : weight.cols / weight.format.group;
}

// docs/model.md 12.7: in each run of 32 columns byte j holds column j (low nibble) and j + 16 (high nibble), codes + 8.
int Int4Code(const HostLinear& weight, int64_t row, int64_t col) {
  const auto* bytes = static_cast<const uint8_t*>(weight.data) + row * (weight.cols / 2) + (col / 32) * 16;
  const int64_t in_run = col % 32;
  const uint8_t byte = bytes[in_run % 16];
  return (in_run < 16 ? byte & 15 : byte >> 4) - 8;
}

// docs/model.md 12.1: word [n/8][k/128][lane][j], nibble i of the word is column k0 + {0,8,16,24,1,9,17,25}[i].
int TileCode(const HostLinear& weight, int64_t row, int64_t col) {
  const int64_t in_block = col % 128;
  const int64_t word = in_block / 32;
  const int64_t in_word = in_block % 32;
  const int64_t pair = in_word % 8;
  const int64_t lane = (row % 8) * 4 + pair / 2;
  const int64_t nibble = in_word / 8 + (pair % 2) * 4;
  const auto* words = static_cast<const uint32_t*>(weight.data);
  const int64_t at = (((row / 8) * (weight.cols / 128) + col / 128) * 32 + lane) * 4 + word;
  return static_cast<int>((words[at] >> (4 * nibble)) & 15u);
}

}  // namespace

std::string FormatName(const Format& format) {
  std::string name;
  switch (format.kind) {
    case FormatKind::kFloat:
      return format.dtype == DType::kF32 ? "fp32" : format.dtype == DType::kF16 ? "fp16" : "bf16";
    case FormatKind::kInt4:
      name = format.int8_activations ? "8da4w" : "4w";
      break;
    case FormatKind::kInt4Tile:
      name = "4w tile_packed_to_4d";
      break;
    case FormatKind::kInt8:
      name = format.int8_activations ? "8da8w" : "8w";
      break;
  }
  return format.group == 0 ? name : name + " g" + std::to_string(format.group);
}

std::optional<Format> ParseFormatName(std::string_view name) {
  for (const FormatKind kind : {FormatKind::kInt4, FormatKind::kInt4Tile, FormatKind::kInt8}) {
    for (const bool int8_activations : {false, true}) {
      for (const int group : {0, 32, 64, 128, 256}) {
        const Format format{kind, DType::kBF16, group, int8_activations};
        const bool meaningful =
            (group != 0 || kind == FormatKind::kInt8) && !(int8_activations && kind == FormatKind::kInt4Tile);
        if (meaningful && name == FormatName(format)) return format;
      }
    }
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Format format{.dtype = dtype};
    if (name == FormatName(format)) return format;
  }
  return std::nullopt;
}

float AsymmetricValue(int code, uint16_t scale, uint16_t zero) {
  // (q - 8) * scale is exact in fp32 (4 x 8 bits), so one fp32 fma followed by one rounding to bf16 would round twice;
  // the fp64 sum of two bf16-derived values is exact enough to round once.
  const double exact =
      static_cast<double>(code - 8) * static_cast<double>(BF16ToF32(scale)) + static_cast<double>(BF16ToF32(zero));
  const auto nearest = static_cast<float>(exact);
  // Round-to-odd through fp32 keeps the single rounding: nudge the fp32 towards the exact value when it was inexact.
  const double error = exact - static_cast<double>(nearest);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (error != 0.0 && (bits & 1u) == 0u) bits += ((error > 0.0) == (nearest > 0.0f)) ? 1u : 0xffffffffu;
  return RoundToBF16(std::bit_cast<float>(bits));
}

float Dequantize(const HostLinear& weight, int64_t row, int64_t col) {
  switch (weight.format.kind) {
    case FormatKind::kFloat:
      return LoadFloat(weight.data, weight.format.dtype, static_cast<size_t>(row * weight.cols + col));
    case FormatKind::kInt4: {
      const float scale = BF16ToF32(weight.scale[row * GroupsPerRow(weight) + GroupOf(weight, col)]);
      return RoundToBF16(static_cast<float>(Int4Code(weight, row, col)) * scale);
    }
    case FormatKind::kInt4Tile: {
      const uint16_t* pair = weight.scale + (GroupOf(weight, col) * weight.rows + row) * 2;
      return AsymmetricValue(TileCode(weight, row, col), pair[0], pair[1]);
    }
    case FormatKind::kInt8: {
      const float scale = BF16ToF32(weight.scale[row * GroupsPerRow(weight) + GroupOf(weight, col)]);
      const auto code = static_cast<float>(static_cast<const int8_t*>(weight.data)[row * weight.cols + col]);
      return RoundToBF16(code * scale);
    }
  }
  return 0.0f;
}

void DequantizeRow(const HostLinear& weight, int64_t row, float* out) {
  VOXRT_DCHECK(row >= 0 && row < weight.rows);
  for (int64_t col = 0; col < weight.cols; ++col) out[col] = Dequantize(weight, row, col);
}

}  // namespace voxrt::quant
