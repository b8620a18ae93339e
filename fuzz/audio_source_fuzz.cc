// Any bytes opened as audio, from a pipe and from something seekable: ends in samples or in a one-line error. The first
// byte chooses. FFmpeg's own code is not instrumented; what is searched is how we drive it, and that nothing it does
// gets out of hand.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "audio/ffmpeg_source.h"
#include "audio/source.h"
#include "base/log.h"

namespace {

constexpr size_t kMaxSamples = size_t{16000} * 60;  // a decoder may make hours of silence from few bytes
// Band-limited samples of a full-scale signal pass full scale: at most by the sum of the filter's absolute taps, 3.5
// for a sinc of 200 lobes ((4 / pi^2) ln 200 + 1.3). Anything above is a decoder's garbage.
constexpr float kMaxSample = 4.0f;

void Drain(voxrt::Result<std::unique_ptr<voxrt::audio::AudioSource>> source) {
  if (!source.ok()) {
    if (source.status().message().find('\n') != std::string::npos) abort();
    return;
  }
  std::vector<float> buffer(4096);
  for (size_t total = 0; total < kMaxSamples;) {
    const auto count = (*source)->Read(buffer);
    if (!count.ok() || *count == 0) return;
    for (size_t i = 0; i < *count; ++i) {
      if (!(buffer[i] >= -kMaxSample && buffer[i] <= kMaxSample)) abort();
    }
    total += *count;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  voxrt::SetLogLevel(voxrt::LogLevel::kOff);
  if (size == 0) return 0;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1,
                                     reinterpret_cast<const std::byte*>(data) + size);
  auto at = std::make_shared<size_t>(0);
  const size_t portion = data[0] % 2 == 0 ? SIZE_MAX : 1 + data[0];
  auto reader = [&bytes, at, portion](std::span<std::byte> buffer) -> voxrt::Result<size_t> {
    const size_t count = *at >= bytes.size() ? 0 : std::min({buffer.size(), portion, bytes.size() - *at});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(*at), count, buffer.begin());
    *at += count;
    return count;
  };
  Drain(voxrt::audio::OpenReader(reader, "fuzz", {}));
  *at = 0;
  auto seek = [at](uint64_t position) {
    *at = position;
    return voxrt::Status();
  };
  Drain(voxrt::audio::OpenFfmpeg(std::make_unique<voxrt::audio::ByteStream>(reader, "fuzz", seek, bytes.size()), {}));
  return 0;
}
