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

// The compiled host backends that whole transcriptions are tested on. The GPU has bf16 activations and its own tests;
// under sanitizers the scalar oracle is left to the conformance tests, since whole clips take minutes there.
std::vector<std::string> HostBackends();

}  // namespace voxrt::testing
