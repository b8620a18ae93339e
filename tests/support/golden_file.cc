#include "support/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>

#include "quant/dtype.h"
#include "weights/safetensors.h"

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

std::vector<std::string> NormalisedWords(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) != 0) {
      if (!words.back().empty()) words.emplace_back();
    } else if (std::isalnum(byte) != 0 || c == '\'') {
      words.back() += static_cast<char>(std::tolower(byte));
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

int WordErrors(const std::vector<std::string>& reference, const std::vector<std::string>& hypothesis) {
  std::vector<int> row(hypothesis.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= reference.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < row.size(); ++j) {
      const int substituted = diagonal + (reference[i - 1] == hypothesis[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace voxrt::testing
