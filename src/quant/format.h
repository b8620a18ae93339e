// Weight formats: what a stored linear weight is made of. Formulas and layouts: docs/model.md section 12 and
// docs/formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quant/dtype.h"

namespace voxrt::quant {

enum class FormatKind : uint8_t {
  kFloat,     // F32, F16 or BF16 row-major, used as it is
  kInt4,      // symmetric 4 bit, one bf16 scale per group ("4w" canonical); nibbles as docs/model.md 12.7
  kInt4Tile,  // asymmetric 4 bit, bf16 scale and zero per group, tile_packed_to_4d order ("4w" for CUDA)
  kInt8,      // symmetric 8 bit, bf16 scale per group or per row ("8w")
};

struct Format {
  FormatKind kind = FormatKind::kFloat;
  DType dtype = DType::kBF16;     // element type of kFloat
  int group = 0;                  // values of K per scale; 0 = one scale per row (kInt8 only)
  bool int8_activations = false;  // "8da4w" / "8da8w": activations quantized per row to int8 before the product
  bool operator==(const Format&) const = default;
};

// "bf16", "4w g128", "8da4w g32", "8w": for reports and errors.
std::string FormatName(const Format& format);
// The inverse; empty for anything that FormatName does not write.
std::optional<Format> ParseFormatName(std::string_view name);

// One linear weight [rows, cols] in host memory, in canonical storage; borrowed (the checkpoint's mapping owns it).
//   kFloat     data = rows x cols elements of `format.dtype`
//   kInt4      data = U8 [rows, cols/2], scale = BF16 [rows, cols/group]
//   kInt4Tile  data = I32 [rows/8, cols/128, 32, 4], scale = BF16 [cols/group, rows, 2] (scale, zero)
//   kInt8      data = I8 [rows, cols], scale = BF16 [rows, groups per row]
// Scales and zeros are finite; symmetric scales may be negative.
struct HostLinear {
  Format format;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* data = nullptr;
  const uint16_t* scale = nullptr;
};

// bf16((code - 8) * scale + zero), rounded once: the value of a kInt4Tile code 0..15; scale and zero are bf16.
float AsymmetricValue(int code, uint16_t scale, uint16_t zero);

// The value of element (row, col) as every backend must see it: the stored value widened, or the dequantized value
// rounded to bf16 (docs/model.md 12). Slow; the definition that tests compare with.
float Dequantize(const HostLinear& weight, int64_t row, int64_t col);

// A whole row: out[0..cols).
void DequantizeRow(const HostLinear& weight, int64_t row, float* out);

}  // namespace voxrt::quant
