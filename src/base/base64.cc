#include "base/base64.h"

#include <array>
#include <cstdint>

namespace voxrt::base {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> MakeValues() {
  std::array<int8_t, 256> values{};
  for (int8_t& value : values) value = -1;
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  return values;
}
constexpr std::array<int8_t, 256> kValues = MakeValues();

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) {
      text.push_back(i + j <= bytes.size() ? kAlphabet[(bits >> (18 - 6 * j)) & 63u] : '=');
    }
  }
  return text;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t bits = 0;
    const size_t letters = i + 4 == text.size() ? 4 - padding : 4;
    for (size_t j = 0; j < 4; ++j) {
      const int value = j < letters ? kValues[static_cast<unsigned char>(text[i + j])] : 0;
      if (value < 0) return std::nullopt;
      bits = bits << 6 | static_cast<uint32_t>(value);
    }
    const size_t count = letters - 1;
    if ((bits & ((1u << (24 - 8 * count)) - 1u)) != 0 && count < 3) return std::nullopt;
    for (size_t j = 0; j < count; ++j) bytes.push_back(static_cast<char>((bits >> (16 - 8 * j)) & 0xffu));
  }
  return bytes;
}

}  // namespace voxrt::base
