// Element types, their sizes and names, and the exact scalar conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace voxrt::quant {

enum class DType : uint8_t { kF32, kF16, kBF16, kI8, kU8, kI32, kI64 };

// Bytes of one element.
constexpr size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kI64:
      return 8;
  }
  return 0;
}

// safetensors' spelling: "F32", "BF16", ...
constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}
std::optional<DType> ParseDType(std::string_view name);

// bf16 is the upper half of an fp32: widening is exact, narrowing rounds to nearest even; NaN stays NaN.
constexpr float BF16ToF32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
constexpr uint16_t F32ToBF16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline float RoundToBF16(float value) { return BF16ToF32(F32ToBF16(value)); }

// IEEE half precision; both directions exact / round to nearest even, subnormals included.
float F16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);

// Element `index` of an array of F32, F16 or BF16 as fp32.
inline float LoadFloat(const void* data, DType dtype, size_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kBF16:
      return BF16ToF32(static_cast<const uint16_t*>(data)[index]);
    case DType::kF16:
      return F16ToF32(static_cast<const uint16_t*>(data)[index]);
    default:
      return 0.0f;
  }
}

}  // namespace voxrt::quant
