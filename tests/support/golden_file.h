// Reading of reference data in tests: tensors of a safetensors file as numbers, samples of a 16-bit mono clip.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace voxrt::testing {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major
};

// All tensors of a file (F32, I32, I16, BF16); fails the running test and returns an empty map when it cannot be read.
std::map<std::string, GoldenTensor> ReadGolden(const std::string& path);

// Samples of a canonical 16 kHz mono 16-bit WAV file (44-byte header), divided by 32768.
std::vector<float> ReadClip(const std::string& path);

// Lower case, letters, digits, apostrophes and single spaces only: the text that word error rates compare.
std::vector<std::string> NormalisedWords(const std::string& text);

// Word edits (substitutions, insertions, deletions) from `reference` to `hypothesis`.
int WordErrors(const std::vector<std::string>& reference, const std::vector<std::string>& hypothesis);

}  // namespace voxrt::testing
