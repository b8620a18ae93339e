// WavParser: RIFF/WAVE (also RF64 and BW64) bytes in, mono fp32 at the file's own rate out. An incremental, pure
// parser: the bytes may be cut anywhere, nothing is read but what is pushed, memory does not depend on any size that
// the file claims.
//
// Formats: PCM of 8, 16, 24 and 32 bits, float of 32 and 64, G.711, plain or WAVE_FORMAT_EXTENSIBLE. Written for files
// as they are found: unfinished size fields (0, 0x7FFFFFFF, 0xFFFFFFFF) mean "until the input ends", a claimed size
// beyond the end is ignored, an odd chunk may lack its pad byte, and any chunks may stand before the data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audio/pcm.h"
#include "audio/source.h"
#include "base/status.h"

namespace voxrt::audio {

struct WavFormat {
  SampleFormat samples = SampleFormat::kS16le;
  int rate = 0;
  int channels = 0;
};

class WavParser {
 public:
  // `name` begins every message.
  explicit WavParser(std::string name);

  // Takes the next bytes and appends the samples of complete frames. After an error the parser must not be used again.
  Status Push(std::span<const std::byte> bytes, std::vector<float>* mono);
  // The input has ended: an error when that happened inside the header. An incomplete last frame is dropped.
  Status Finish();

  // Known once the data chunk has begun.
  const std::optional<WavFormat>& format() const { return format_; }
  // Bytes of the data chunk; absent while unknown or when the file does not say.
  std::optional<uint64_t> data_bytes() const { return data_bytes_; }
  // Where the samples begin in the input.
  uint64_t data_offset() const { return data_offset_; }
  // The data chunk has ended: what follows holds no audio.
  bool done() const { return step_ == Step::kDone; }
  // The error was a codec that this reader does not decode; another decoder may.
  bool foreign_codec() const { return foreign_codec_; }

 private:
  enum class Step { kRiff, kChunk, kFormat, kSize64, kSkip, kPad, kData, kDone };

  // Collects header bytes until `count` are there; true when they are.
  bool Collect(std::span<const std::byte>* bytes, size_t count);
  Status TakeRiff();
  Status TakeChunk();
  Status TakeFormat();
  void TakeSize64();
  void TakePad();
  Status BeginData(uint32_t size);
  void Skip(uint64_t count, bool odd);
  void TakeData(std::span<const std::byte>* bytes, std::vector<float>* mono);
  uint32_t U16(size_t at) const;
  uint32_t U32(size_t at) const;
  uint64_t U64(size_t at) const;

  std::string name_;
  Step step_ = Step::kRiff;
  std::array<std::byte, 40> head_{};  // the header piece being collected
  size_t head_size_ = 0;
  uint64_t position_ = 0;  // bytes taken so far
  uint64_t riff_size_ = 0;
  uint64_t size64_ = 0;      // data size of a ds64 chunk, 0 = not given
  uint64_t chunk_size_ = 0;  // of the chunk being read
  uint64_t remaining_ = 0;   // bytes of the chunk still to skip or to decode
  bool odd_chunk_ = false;
  bool foreign_codec_ = false;
  std::optional<WavFormat> pending_format_;  // from fmt, before the data began
  std::optional<WavFormat> format_;
  std::optional<uint64_t> data_bytes_;
  uint64_t data_offset_ = 0;
  std::optional<PcmDecoder> decoder_;
};

// Whether the first bytes (12 are enough) begin a RIFF, RF64 or BW64 WAVE file.
bool LooksLikeWav(std::span<const std::byte> head);

}  // namespace voxrt::audio
