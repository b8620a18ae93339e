// PcmDecoder: interleaved samples of one fixed format to mono fp32. The bytes may be cut anywhere; an incomplete frame
// waits for the rest. Non-finite values become 0, everything is clamped to +-1, channels are averaged.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "audio/source.h"

namespace voxrt::audio {

inline constexpr int kMaxChannels = 256;
inline constexpr int kMinRate = 1000;
inline constexpr int kMaxRate = 768000;

int BytesPerSample(SampleFormat format);
const char* SampleFormatName(SampleFormat format);  // "s16le", ...

// NaN and infinities to 0, the rest to -1 .. 1.
float CleanSample(double value);

class PcmDecoder {
 public:
  // 1 <= channels <= kMaxChannels
  PcmDecoder(SampleFormat format, int channels);

  // Appends one sample per complete frame. s16 is divided by 32768.
  void Push(std::span<const std::byte> bytes, std::vector<float>* mono);
  // Bytes of the incomplete frame at the end of what was pushed; at the end of a stream they are dropped.
  size_t pending_bytes() const { return pending_; }
  void Reset() { pending_ = 0; }

 private:
  SampleFormat format_;
  int channels_;
  size_t frame_bytes_;
  size_t pending_ = 0;
  std::vector<std::byte> frame_;  // [frame_bytes_]: a frame that arrives in parts
};

// Why this rate or channel count cannot be used, or ok. `name` begins the message.
Status CheckRateAndChannels(std::string_view name, int64_t rate, int64_t channels);

}  // namespace voxrt::audio
