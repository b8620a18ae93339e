#include "support/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "backend/registry.h"
#include "quant/dtype.h"
#include "weights/safetensors.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VOXRT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VOXRT_SANITIZED 1
#endif
#endif
#ifndef VOXRT_SANITIZED
#define VOXRT_SANITIZED 0
#endif

namespace voxrt::testing {
namespace {

std::vector<char> ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double ValueAt(const char* data, const std::string& dtype, int64_t index) {
  const auto load = [&](auto value) {
    std::memcpy(&value, data + static_cast<size_t>(index) * sizeof(value), sizeof(value));
    return value;
  };
  if (dtype == "F32") return static_cast<double>(load(float{}));
  if (dtype == "I32") return load(int32_t{});
  if (dtype == "I16") return load(int16_t{});
  if (dtype == "BF16") return static_cast<double>(quant::BF16ToF32(load(uint16_t{})));
  ADD_FAILURE() << "golden data of type " << dtype;
  return 0.0;
}

}  // namespace

std::map<std::string, GoldenTensor> ReadGolden(const std::string& path) {
  const std::vector<char> bytes = ReadBytes(path);
  const auto header = weights::ParseSafetensorsHeader(std::as_bytes(std::span(bytes)));
  std::map<std::string, GoldenTensor> tensors;
  if (!header.ok()) {
    ADD_FAILURE() << header.status().message();
    return tensors;
  }
  for (const weights::SafetensorsEntry& entry : header->entries) {
    GoldenTensor& tensor = tensors[entry.name];
    tensor.shape = entry.shape;
    const char* data = bytes.data() + header->data_offset + entry.begin;
    for (int64_t i = 0; i < entry.elements(); ++i) tensor.values.push_back(ValueAt(data, entry.dtype_name, i));
  }
  return tensors;
}

std::vector<float> ReadClip(const std::string& path) {
  const std::vector<char> bytes = ReadBytes(path);
  std::vector<float> samples;
  for (size_t at = 44; at + 1 < bytes.size(); at += 2) {
    int16_t sample = 0;
    std::memcpy(&sample, bytes.data() + at, sizeof(sample));
    samples.push_back(static_cast<float>(sample) / 32768.0f);
  }
  return samples;
}

std::vector<std::string> HostBackends() {
  std::vector<std::string> names;
  const bool has_cpu =
      std::ranges::any_of(backend::CompiledBackends(), [](const auto& entry) { return entry.name == "cpu"; });
  for (const backend::BackendEntry& entry : backend::CompiledBackends()) {
    if (entry.name == "cuda" || (VOXRT_SANITIZED && has_cpu && entry.name == "ref")) continue;
    names.emplace_back(entry.name);
  }
  return names;
}

}  // namespace voxrt::testing
