// AudioSource: any input as a pull stream of 16 kHz mono fp32 samples, in constant memory, first samples before the end
// of input.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::audio {

// Raw PCM without a header (--format, --rate, --channels).
enum class SampleFormat : uint8_t { kU8, kS16le, kS16be, kS24le, kS32le, kF16le, kF32le, kF64le, kMulaw, kAlaw };
std::optional<SampleFormat> ParseSampleFormat(std::string_view name);  // "s16le", ...
struct RawFormat {
  SampleFormat format = SampleFormat::kS16le;
  int rate = 16000;
  int channels = 1;
};

struct AudioInfo {
  std::string container;  // "wav", "mp3", "matroska,webm", "raw"
  std::string codec;      // "pcm_s16le", "opus", ...
  int rate = 0;           // of the input
  int channels = 0;
  double duration_s = -1.0;  // < 0: unknown (pipes)
  double declared_s = -1.0;  // what the header promises; < 0: nothing. More than there is: the file was cut short
};

// Pulls bytes: returns how many were written to `buffer` (0 = end of input), or a Status. Blocks until at least one
// byte is there.
using ByteReader = std::function<Result<size_t>(std::span<std::byte> buffer)>;

class AudioSource {
 public:
  virtual ~AudioSource() = default;
  // Fills up to samples.size() samples; 0 = end. Blocks until at least one sample is there (live pipes: hands out what
  // has arrived).
  virtual Result<size_t> Read(std::span<float> samples) = 0;
  virtual const AudioInfo& info() const = 0;
};

struct SourceOptions {
  std::optional<RawFormat> raw;  // else the container is detected from the first bytes
  int target_rate = 16000;
};

// A file by name.
Result<std::unique_ptr<AudioSource>> OpenFile(const std::string& path, const SourceOptions& options);
// Bytes from anywhere (pipe, upload). `name` is used in messages only. Not seekable.
Result<std::unique_ptr<AudioSource>> OpenReader(ByteReader reader, const std::string& name,
                                                const SourceOptions& options);
// A reader over a file descriptor: poll + read, returns kCancelled when *cancel becomes true (checked at least every
// 100 ms).
ByteReader DescriptorReader(int fd, const std::atomic<bool>* cancel);

}  // namespace voxrt::audio
