// Test support: RIFF files built piece by piece, well-formed or not, and signals to put into them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "audio/source.h"

namespace voxrt::audio::test {

using Bytes = std::vector<std::byte>;

inline void Append(Bytes* out, std::string_view text) {
  for (char c : text) out->push_back(static_cast<std::byte>(c));
}
inline void Append(Bytes* out, const Bytes& more) { out->insert(out->end(), more.begin(), more.end()); }
// Little-endian, `count` bytes.
inline void AppendNumber(Bytes* out, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) out->push_back(static_cast<std::byte>(value >> (8 * i) & 0xFF));
}
inline Bytes FromText(std::string_view text) {
  Bytes bytes;
  Append(&bytes, text);
  return bytes;
}

// s16 samples of a tone that differs from its neighbours everywhere.
inline std::vector<int16_t> Tone(size_t count, double hz = 440.0, int rate = 16000, double gain = 0.5) {
  std::vector<int16_t> samples(count);
  for (size_t i = 0; i < count; ++i) {
    samples[i] =
        static_cast<int16_t>(std::lround(32767.0 * gain * std::sin(2.0 * M_PI * hz * static_cast<double>(i) / rate)));
  }
  return samples;
}

inline std::vector<float> ToFloat(const std::vector<int16_t>& samples) {
  std::vector<float> floats;
  for (int16_t s : samples) floats.push_back(static_cast<float>(s) / 32768.0f);
  return floats;
}

inline Bytes S16Bytes(const std::vector<int16_t>& samples) {
  Bytes bytes;
  for (int16_t s : samples) AppendNumber(&bytes, static_cast<uint16_t>(s), 2);
  return bytes;
}

struct WavSpec {
  uint32_t tag = 1;
  uint32_t channels = 1;
  uint32_t rate = 16000;
  uint32_t bits = 16;
  int format_bytes = 16;     // 16, 18, 20 (cbSize 2) or 40
  uint32_t sub_tag = 1;      // SubFormat of tag 0xFFFE
  std::string before = {};   // chunks before fmt, as bytes
  std::string between = {};  // chunks between fmt and data
  std::string after = {};    // bytes after the data
  std::string_view id = "RIFF";
  int64_t riff_size = -1;  // -1: the right one
  int64_t data_size = -1;  // -1: the right one
};

inline std::string Chunk(std::string_view id, std::string_view body, bool pad = true) {
  Bytes size;
  AppendNumber(&size, body.size(), 4);
  std::string chunk(id);
  chunk.append(reinterpret_cast<const char*>(size.data()), 4);
  chunk.append(body);
  if (pad && body.size() % 2 != 0) chunk.push_back('\0');
  return chunk;
}

inline Bytes FormatBody(const WavSpec& spec) {
  const uint32_t frame_bytes = spec.channels * ((spec.bits + 7) / 8);
  Bytes body;
  AppendNumber(&body, spec.tag, 2);
  AppendNumber(&body, spec.channels, 2);
  AppendNumber(&body, spec.rate, 4);
  AppendNumber(&body, spec.rate * frame_bytes, 4);
  AppendNumber(&body, frame_bytes, 2);
  AppendNumber(&body, spec.bits, 2);
  if (spec.format_bytes >= 18) AppendNumber(&body, static_cast<uint64_t>(spec.format_bytes - 18), 2);
  if (spec.format_bytes == 20) AppendNumber(&body, 0, 2);
  if (spec.format_bytes == 40) {
    AppendNumber(&body, spec.bits, 2);
    AppendNumber(&body, 0, 4);
    AppendNumber(&body, spec.sub_tag, 2);
    Append(&body, std::string_view("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14));
  }
  return body;
}

inline Bytes MakeWav(const WavSpec& spec, const Bytes& data) {
  const Bytes format = FormatBody(spec);
  Bytes rest;
  Append(&rest, "WAVE");
  Append(&rest, spec.before);
  Append(&rest, Chunk("fmt ", std::string_view(reinterpret_cast<const char*>(format.data()), format.size())));
  Append(&rest, spec.between);
  Append(&rest, "data");
  AppendNumber(&rest, spec.data_size < 0 ? data.size() : static_cast<uint64_t>(spec.data_size), 4);
  Append(&rest, data);
  Append(&rest, spec.after);
  Bytes wav;
  Append(&wav, spec.id);
  AppendNumber(&wav, spec.riff_size < 0 ? rest.size() : static_cast<uint64_t>(spec.riff_size), 4);
  Append(&wav, rest);
  return wav;
}

// Bytes in portions of at most `portion` (0: as many as asked for), then the end.
inline ByteReader MemoryReader(Bytes bytes, size_t portion = 0) {
  return [bytes = std::move(bytes), portion, at = size_t{0}](std::span<std::byte> buffer) mutable -> Result<size_t> {
    size_t count = std::min(buffer.size(), bytes.size() - at);
    if (portion > 0) count = std::min(count, portion);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, buffer.begin());
    at += count;
    return count;
  };
}

// All samples of a source; `status` tells how it ended.
inline std::vector<float> ReadAll(AudioSource& source, Status* status = nullptr, size_t block = 4096) {
  std::vector<float> samples, buffer(block);
  for (;;) {
    Result<size_t> count = source.Read(buffer);
    if (status != nullptr) *status = count.status();
    if (status == nullptr && !count.ok()) ADD_FAILURE() << count.status().message();
    if (!count.ok() || *count == 0) return samples;
    samples.insert(samples.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
  }
}

inline Bytes FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return FromText(text);
}

inline std::string WriteTemporary(const std::string& name, const Bytes& bytes) {
  std::string path = testing::TempDir() + "voxrt_" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) +
                     "_" + testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "_" +
                     testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + name;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

// One line, begins with the name, no stray end.
inline void ExpectOneLine(const Status& status, const std::string& name) {
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  EXPECT_EQ(status.message().rfind(name + ": ", 0), 0u) << status.message();
}

}  // namespace voxrt::audio::test
