#include "server/protocol/base64.h"

#include <array>
#include <cstdint>

namespace voxrt::server {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<uint8_t, 256> MakeReverse() {
  std::array<uint8_t, 256> table{};
  for (auto& entry : table) entry = 0xFF;
  for (size_t i = 0; i < kAlphabet.size(); ++i) table[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  return table;
}
constexpr std::array<uint8_t, 256> kReverse = MakeReverse();

uint32_t Value(char c) { return kReverse[static_cast<uint8_t>(c)]; }

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  if (!text.empty() && text.back() == '=') padding = text[text.size() - 2] == '=' ? 2 : 1;
  const size_t whole = text.size() / 4 - (padding != 0 ? 1 : 0);
  std::string bytes;
  bytes.resize(text.size() / 4 * 3 - padding);
  size_t out = 0;
  uint32_t seen = 0;  // any invalid character sets bits above 0x3F
  for (size_t i = 0; i < whole; ++i) {
    const uint32_t a = Value(text[4 * i]), b = Value(text[4 * i + 1]), c = Value(text[4 * i + 2]),
                   d = Value(text[4 * i + 3]);
    seen |= a | b | c | d;
    const uint32_t bits = (a << 18) | (b << 12) | (c << 6) | d;
    bytes[out++] = static_cast<char>(bits >> 16);
    bytes[out++] = static_cast<char>(bits >> 8);
    bytes[out++] = static_cast<char>(bits);
  }
  if (padding != 0) {
    const std::string_view last = text.substr(text.size() - 4);
    const uint32_t a = Value(last[0]), b = Value(last[1]), c = padding == 1 ? Value(last[2]) : 0;
    seen |= a | b | c;
    const uint32_t bits = (a << 18) | (b << 12) | (c << 6);
    bytes[out++] = static_cast<char>(bits >> 16);
    if (padding == 1) bytes[out++] = static_cast<char>(bits >> 8);
  }
  if (seen > 0x3F) return std::nullopt;
  return bytes;
}

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = (bits << 8) | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    text += kAlphabet[bits >> 18];
    text += kAlphabet[(bits >> 12) & 63];
    text += n > 1 ? kAlphabet[(bits >> 6) & 63] : '=';
    text += n > 2 ? kAlphabet[bits & 63] : '=';
  }
  return text;
}

}  // namespace voxrt::server
