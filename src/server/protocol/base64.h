// Strict base64 (RFC 4648 section 4): standard alphabet, padding, no white space.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace voxrt::server {

// nullopt for any byte outside the alphabet, wrong padding, or a length that is no multiple of four.
std::optional<std::string> DecodeBase64(std::string_view text);
std::string EncodeBase64(std::string_view bytes);

}  // namespace voxrt::server
