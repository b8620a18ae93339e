// The audio formats of the realtime dialects, and the bytes of one stream as they come: a WAV header at the start is
// recognised and removed, samples cut by a message border are put together again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::server {

enum class Encoding : uint8_t { kPcmS16, kPcmS32, kPcmF16, kPcmF32, kMulaw, kAlaw };

struct AudioFormat {
  Encoding encoding = Encoding::kPcmS16;
  int rate = 16000;
  bool operator==(const AudioFormat&) const = default;
};

size_t BytesPerSample(Encoding encoding);
// Mistral's names: "pcm_s16le", "pcm_s32le", "pcm_f16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw".
const char* EncodingName(Encoding encoding);
std::optional<Encoding> ParseEncoding(std::string_view name);

// Removes a RIFF/WAVE header from the start of a stream whose format was declared beforehand; everything else passes
// unchanged.
class WavHeaderFilter {
 public:
  // Appends the payload bytes of `bytes` to `out`. kInvalidAudio when a header says something else than `declared`: the
  // held bytes are dropped, and later bytes pass as they are.
  Status Push(std::string_view bytes, const AudioFormat& declared, std::string* out);
  // The stream ended: bytes still held as a possible header go to `out`.
  void End(std::string* out);

 private:
  Status ParseHeader(const AudioFormat& declared, std::string* out);

  bool undecided_ = true;
  std::string held_;
};

// Bytes of one stream to mono samples, nominal range +-1. A sample cut between two pushes is carried; a rest at the end
// is dropped.
class PcmDecoder {
 public:
  explicit PcmDecoder(Encoding encoding = Encoding::kPcmS16) : encoding_(encoding) {}
  void Push(std::string_view bytes, std::vector<float>* samples);
  void Reset(Encoding encoding);

 private:
  Encoding encoding_;
  std::string carry_;  // less than one sample
};

}  // namespace voxrt::server
