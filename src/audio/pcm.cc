// One loader per sample format, chosen once per call; the loop over frames is the same for all.
#include "audio/pcm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "audio/g711.h"

namespace voxrt::audio {
namespace {

constexpr std::pair<SampleFormat, const char*> kNames[] = {
    {SampleFormat::kU8, "u8"},       {SampleFormat::kS16le, "s16le"}, {SampleFormat::kS16be, "s16be"},
    {SampleFormat::kS24le, "s24le"}, {SampleFormat::kS32le, "s32le"}, {SampleFormat::kF16le, "f16le"},
    {SampleFormat::kF32le, "f32le"}, {SampleFormat::kF64le, "f64le"}, {SampleFormat::kMulaw, "mulaw"},
    {SampleFormat::kAlaw, "alaw"},
};

uint32_t Byte(const std::byte* p, int i) { return std::to_integer<uint32_t>(p[i]); }
uint32_t Little32(const std::byte* p) { return Byte(p, 0) | Byte(p, 1) << 8 | Byte(p, 2) << 16 | Byte(p, 3) << 24; }

float FromS16(uint32_t bits) { return static_cast<float>(static_cast<int16_t>(bits)) / 32768.0f; }
float FromS32(uint32_t bits) { return static_cast<float>(static_cast<int32_t>(bits)) / 2147483648.0f; }

float FromF16(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const float mantissa = static_cast<float>(bits & 1023) / 1024.0f;
  if (exponent == 31) return 0.0f;  // infinity or NaN
  const float value = exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0f + mantissa, exponent - 15);
  return CleanSample((bits & 0x8000) != 0 ? -value : value);
}

float FromF64(const std::byte* p) {
  return CleanSample(std::bit_cast<double>(static_cast<uint64_t>(Little32(p + 4)) << 32 | Little32(p)));
}

// data: [frames, channels] samples of `bytes` bytes each; `load` reads one.
template <typename Load>
void Average(const std::byte* data, size_t frames, int channels, int bytes, std::vector<float>* mono, Load load) {
  const size_t at = mono->size();
  mono->resize(at + frames);
  float* out = mono->data() + at;
  for (size_t f = 0; f < frames; ++f) {
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c, data += bytes) sum += load(data);
    out[f] = channels == 1 ? sum : sum / static_cast<float>(channels);
  }
}

void DecodeFrames(SampleFormat format, const std::byte* data, size_t frames, int channels, std::vector<float>* mono) {
  const auto run = [&](auto load) { Average(data, frames, channels, BytesPerSample(format), mono, load); };
  using P = const std::byte*;
  switch (format) {
    case SampleFormat::kU8:
      return run([](P p) { return (static_cast<float>(Byte(p, 0)) - 128.0f) / 128.0f; });
    case SampleFormat::kS16le:
      return run([](P p) { return FromS16(Byte(p, 0) | Byte(p, 1) << 8); });
    case SampleFormat::kS16be:
      return run([](P p) { return FromS16(Byte(p, 1) | Byte(p, 0) << 8); });
    case SampleFormat::kS24le:
      return run([](P p) { return FromS32(Byte(p, 0) << 8 | Byte(p, 1) << 16 | Byte(p, 2) << 24); });
    case SampleFormat::kS32le:
      return run([](P p) { return FromS32(Little32(p)); });
    case SampleFormat::kF16le:
      return run([](P p) { return FromF16(Byte(p, 0) | Byte(p, 1) << 8); });
    case SampleFormat::kF32le:
      return run([](P p) { return CleanSample(std::bit_cast<float>(Little32(p))); });
    case SampleFormat::kF64le:
      return run([](P p) { return FromF64(p); });
    case SampleFormat::kMulaw:
      return run([](P p) { return static_cast<float>(DecodeMulaw(static_cast<uint8_t>(Byte(p, 0)))) / 32768.0f; });
    case SampleFormat::kAlaw:
      return run([](P p) { return static_cast<float>(DecodeAlaw(static_cast<uint8_t>(Byte(p, 0)))) / 32768.0f; });
  }
}

}  // namespace

int BytesPerSample(SampleFormat format) {
  switch (format) {
    case SampleFormat::kU8:
    case SampleFormat::kMulaw:
    case SampleFormat::kAlaw:
      return 1;
    case SampleFormat::kS16le:
    case SampleFormat::kS16be:
    case SampleFormat::kF16le:
      return 2;
    case SampleFormat::kS24le:
      return 3;
    case SampleFormat::kS32le:
    case SampleFormat::kF32le:
      return 4;
    case SampleFormat::kF64le:
      return 8;
  }
  return 0;
}

const char* SampleFormatName(SampleFormat format) {
  for (const auto& [value, name] : kNames) {
    if (value == format) return name;
  }
  return "";
}

std::optional<SampleFormat> ParseSampleFormat(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (name == known) return value;
  }
  return std::nullopt;
}

float CleanSample(double value) {
  if (!std::isfinite(value)) return 0.0f;
  return static_cast<float>(std::clamp(value, -1.0, 1.0));
}

Status CheckRateAndChannels(std::string_view name, int64_t rate, int64_t channels) {
  if (rate < kMinRate || rate > kMaxRate) {
    return {StatusCode::kInvalidAudio,
            fmt::format("{}: sample rate is {} Hz, expected {} to {}; check the file or --rate", name, rate, kMinRate,
                        kMaxRate)};
  }
  if (channels < 1 || channels > kMaxChannels) {
    return {StatusCode::kInvalidAudio,
            fmt::format("{}: number of channels is {}, expected 1 to {}; check the file or --channels", name, channels,
                        kMaxChannels)};
  }
  return {};
}

PcmDecoder::PcmDecoder(SampleFormat format, int channels)
    : format_(format),
      channels_(channels),
      frame_bytes_(static_cast<size_t>(BytesPerSample(format)) * static_cast<size_t>(channels)),
      frame_(frame_bytes_) {
  VOXRT_CHECK(channels >= 1 && channels <= kMaxChannels);
}

void PcmDecoder::Push(std::span<const std::byte> bytes, std::vector<float>* mono) {
  if (pending_ > 0) {
    const size_t take = std::min(bytes.size(), frame_bytes_ - pending_);
    std::copy_n(bytes.begin(), take, frame_.begin() + static_cast<std::ptrdiff_t>(pending_));
    pending_ += take;
    bytes = bytes.subspan(take);
    if (pending_ < frame_bytes_) return;
    DecodeFrames(format_, frame_.data(), 1, channels_, mono);
    pending_ = 0;
  }
  const size_t frames = bytes.size() / frame_bytes_;
  DecodeFrames(format_, bytes.data(), frames, channels_, mono);
  const auto rest = bytes.subspan(frames * frame_bytes_);
  std::copy(rest.begin(), rest.end(), frame_.begin());
  pending_ = rest.size();
}

}  // namespace voxrt::audio
