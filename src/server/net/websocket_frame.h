// Unmasked WebSocket frames (RFC 6455 section 5) of a server, for the one case in which Beast cannot write any more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace voxrt::server {

inline std::string ServerFrame(uint8_t opcode, std::string_view payload) {
  std::string frame(1, static_cast<char>(0x80 | opcode));
  const uint64_t size = payload.size();
  if (size < 126) {
    frame += static_cast<char>(size);
  } else {
    const int bytes = size < 65536 ? 2 : 8;
    frame += static_cast<char>(bytes == 2 ? 126 : 127);
    for (int i = bytes - 1; i >= 0; --i) frame += static_cast<char>(size >> (8 * i));
  }
  return frame.append(payload);
}

inline std::string TextFrame(std::string_view text) { return ServerFrame(1, text); }
inline std::string CloseFrame(uint16_t code, std::string_view reason) {
  std::string payload = {static_cast<char>(code >> 8), static_cast<char>(code)};
  return ServerFrame(8, payload.append(reason));
}

}  // namespace voxrt::server
