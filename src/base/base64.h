// Base64 of RFC 4648, standard alphabet with padding. Decoding is strict: no white space, no URL-safe letters, no
// missing padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace voxrt::base {

std::string EncodeBase64(std::string_view bytes);
// Empty when `text` is not exactly what EncodeBase64 writes (unused bits of the last letter must be zero too).
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace voxrt::base
