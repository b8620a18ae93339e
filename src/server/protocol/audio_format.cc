#include "server/protocol/audio_format.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace voxrt::server {
namespace {

struct EncodingRow {
  Encoding encoding;
  const char* name;
  size_t bytes;
};
constexpr std::array<EncodingRow, 6> kEncodings = {{{Encoding::kPcmS16, "pcm_s16le", 2},
                                                    {Encoding::kPcmS32, "pcm_s32le", 4},
                                                    {Encoding::kPcmF16, "pcm_f16le", 2},
                                                    {Encoding::kPcmF32, "pcm_f32le", 4},
                                                    {Encoding::kMulaw, "pcm_mulaw", 1},
                                                    {Encoding::kAlaw, "pcm_alaw", 1}}};

constexpr size_t kMaxHeaderBytes = 64 * 1024;  // LIST and JUNK chunks before the data

uint32_t Little(std::string_view bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  return value;
}

float HalfToFloat(uint16_t half) {
  const uint32_t exponent = (half >> 10) & 31U, fraction = half & 1023U;
  float value = 0.0f;
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else if (exponent == 31) {
    value = 0.0f;  // infinities and NaN are no sound
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024U), static_cast<int>(exponent) - 25);
  }
  return (half & 0x8000U) != 0 ? -value : value;
}

float MulawToFloat(uint8_t code) {
  const uint8_t inverted = static_cast<uint8_t>(~code);
  const int magnitude = ((((inverted & 15) << 3) + 132) << ((inverted >> 4) & 7)) - 132;
  return static_cast<float>((inverted & 0x80) != 0 ? -magnitude : magnitude) / 32768.0f;
}

float AlawToFloat(uint8_t code) {
  const int inverted = code ^ 0x55;
  const int segment = (inverted >> 4) & 7;
  int magnitude = ((inverted & 15) << 4) + 8;
  if (segment != 0) magnitude = (magnitude + 256) << (segment - 1);
  return static_cast<float>((inverted & 0x80) != 0 ? magnitude : -magnitude) / 32768.0f;
}

float DecodeSample(Encoding encoding, const char* bytes) {
  switch (encoding) {
    case Encoding::kPcmS16:
      return static_cast<float>(static_cast<int16_t>(Little({bytes, 2}, 0, 2))) / 32768.0f;
    case Encoding::kPcmS32:
      return static_cast<float>(static_cast<int32_t>(Little({bytes, 4}, 0, 4))) / 2147483648.0f;
    case Encoding::kPcmF16:
      return HalfToFloat(static_cast<uint16_t>(Little({bytes, 2}, 0, 2)));
    case Encoding::kPcmF32:
      return std::bit_cast<float>(Little({bytes, 4}, 0, 4));
    case Encoding::kMulaw:
      return MulawToFloat(static_cast<uint8_t>(bytes[0]));
    case Encoding::kAlaw:
      return AlawToFloat(static_cast<uint8_t>(bytes[0]));
  }
  return 0.0f;
}

// What the `fmt ` chunk declares, as the format it would be here; nullopt when no realtime dialect can carry it.
std::optional<Encoding> WavEncoding(uint32_t tag, uint32_t bits) {
  if (tag == 1 && bits == 16) return Encoding::kPcmS16;
  if (tag == 1 && bits == 32) return Encoding::kPcmS32;
  if (tag == 3 && bits == 32) return Encoding::kPcmF32;
  if (tag == 7 && bits == 8) return Encoding::kMulaw;
  if (tag == 6 && bits == 8) return Encoding::kAlaw;
  return std::nullopt;
}

Status CheckFmtChunk(std::string_view fmt_chunk, const AudioFormat& declared) {
  uint32_t tag = Little(fmt_chunk, 0, 2);
  const uint32_t channels = Little(fmt_chunk, 2, 2), rate = Little(fmt_chunk, 4, 4), bits = Little(fmt_chunk, 14, 2);
  if (tag == 0xFFFE && fmt_chunk.size() >= 26)
    tag = Little(fmt_chunk, 24, 2);  // WAVE_FORMAT_EXTENSIBLE: the GUID decides
  const std::optional<Encoding> encoding = WavEncoding(tag, bits);
  if (encoding == declared.encoding && channels == 1 && rate == static_cast<uint32_t>(declared.rate)) return {};
  return {StatusCode::kInvalidAudio,
          fmt::format("The audio starts with a WAV header of {} channel(s), {} Hz, {} bit, format tag {}; this session "
                      "takes {} at {} Hz, one "
                      "channel: convert the file first, or send it to /v1/audio/transcriptions",
                      channels, rate, bits, tag, EncodingName(declared.encoding), declared.rate)};
}

}  // namespace

size_t BytesPerSample(Encoding encoding) { return kEncodings[static_cast<size_t>(encoding)].bytes; }
const char* EncodingName(Encoding encoding) { return kEncodings[static_cast<size_t>(encoding)].name; }

std::optional<Encoding> ParseEncoding(std::string_view name) {
  for (const EncodingRow& row : kEncodings) {
    if (name == row.name) return row.encoding;
  }
  return std::nullopt;
}

Status WavHeaderFilter::Push(std::string_view bytes, const AudioFormat& declared, std::string* out) {
  if (!undecided_) {
    out->append(bytes);
    return {};
  }
  held_.append(bytes);
  const std::string_view riff = std::string_view(held_).substr(0, 4);
  const bool may_be = riff == std::string_view("RIFF").substr(0, riff.size()) &&
                      (held_.size() < 12 || std::string_view(held_).substr(8, 4) == "WAVE");
  if (!may_be) {
    End(out);
    return {};
  }
  return held_.size() < 12 ? Status() : ParseHeader(declared, out);
}

Status WavHeaderFilter::ParseHeader(const AudioFormat& declared, std::string* out) {
  const std::string_view held = held_;
  bool has_format = false;
  size_t at = 12;
  while (at + 8 <= held.size()) {
    const std::string_view id = held.substr(at, 4);
    if (id == "data" && has_format) {
      out->append(held.substr(at + 8));
      undecided_ = false;
      held_ = std::string();
      return {};
    }
    const uint64_t size = Little(held, at + 4, 4);
    if (id == "data" || size > kMaxHeaderBytes || (id == "fmt " && size < 16)) {
      at = kMaxHeaderBytes + 1;
      break;
    }
    if (at + 8 + size > held.size()) break;
    if (id == "fmt ") {
      has_format = true;
      Status status = CheckFmtChunk(held.substr(at + 8, size), declared);
      if (!status.ok()) {
        undecided_ = false;
        held_ = std::string();
        return status;
      }
    }
    at += 8 + size + (size & 1);
  }
  if (at <= kMaxHeaderBytes && held.size() <= kMaxHeaderBytes) return {};  // more bytes decide
  undecided_ = false;
  held_ = std::string();
  return {StatusCode::kInvalidAudio,
          "The audio starts with a WAV header without usable 'fmt ' and 'data' chunks: send the samples alone"};
}

void WavHeaderFilter::End(std::string* out) {
  undecided_ = false;
  out->append(held_);
  held_ = std::string();
}

void PcmDecoder::Push(std::string_view bytes, std::vector<float>* samples) {
  const size_t width = BytesPerSample(encoding_);
  if (!carry_.empty()) {
    const size_t take = std::min(width - carry_.size(), bytes.size());
    carry_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (carry_.size() < width) return;
    samples->push_back(DecodeSample(encoding_, carry_.data()));
    carry_.clear();
  }
  const size_t count = bytes.size() / width;
  samples->reserve(samples->size() + count);
  for (size_t i = 0; i < count; ++i) samples->push_back(DecodeSample(encoding_, bytes.data() + i * width));
  carry_.assign(bytes.substr(count * width));
}

void PcmDecoder::Reset(Encoding encoding) {
  encoding_ = encoding;
  carry_.clear();
}

}  // namespace voxrt::server
