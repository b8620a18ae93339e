// WavParser on any bytes: whole and cut up give the same samples, none out of range, none that the bytes do not hold.
// The first byte chooses the portions.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "audio/wav_reader.h"

namespace {

struct Outcome {
  std::vector<float> samples;
  bool ok = true;
};

Outcome Parse(std::span<const std::byte> bytes, size_t portion) {
  voxrt::audio::WavParser parser("fuzz.wav");
  Outcome outcome;
  while (!bytes.empty() && outcome.ok) {
    const size_t count = bytes.size() < portion ? bytes.size() : portion;
    outcome.ok = parser.Push(bytes.first(count), &outcome.samples).ok();
    bytes = bytes.subspan(count);
  }
  if (outcome.ok) outcome.ok = parser.Finish().ok();
  if (!outcome.samples.empty() && !parser.format().has_value()) abort();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const Outcome whole = Parse(bytes, SIZE_MAX);
  const Outcome cut = Parse(bytes, 1 + data[0] % 61);
  if (whole.ok != cut.ok || whole.samples != cut.samples) abort();
  if (whole.samples.size() > bytes.size()) abort();
  for (float sample : whole.samples) {
    if (!(sample >= -1.0f && sample <= 1.0f)) abort();
  }
  return 0;
}
