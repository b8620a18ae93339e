// ITU-T G.711: one byte of mu-law or A-law to a 16-bit sample value. Decoding only; nothing here encodes.
#pragma once

#include <cstdint>

namespace voxrt::audio {

constexpr int16_t DecodeMulaw(uint8_t code) {
  constexpr int kBias = 0x84;
  const int inverted = code ^ 0xFF;
  const int magnitude = ((((inverted & 0x0F) << 3) + kBias) << ((inverted >> 4) & 7)) - kBias;
  return static_cast<int16_t>((inverted & 0x80) != 0 ? -magnitude : magnitude);
}

constexpr int16_t DecodeAlaw(uint8_t code) {
  const int toggled = code ^ 0x55;
  const int segment = (toggled >> 4) & 7;
  int magnitude = ((toggled & 0x0F) << 4) + 8;
  if (segment > 0) magnitude = (magnitude + 0x100) << (segment - 1);
  return static_cast<int16_t>((toggled & 0x80) != 0 ? magnitude : -magnitude);
}

}  // namespace voxrt::audio
