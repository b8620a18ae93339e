// Sampling of a token at temperature > 0: softmax(logits / temperature) in fp32, a random number that depends on (seed,
// token index) alone (Philox 4x32-10, Salmon et al. 2011), so that a stream gives the same text however it is chunked
// or batched.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace voxrt::engine {

// One block of Philox 4x32-10: counter and key to four words.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) for a token of a stream.
double UniformForToken(uint64_t seed, int64_t token_index);

// The id whose cumulative probability first exceeds `uniform`. `temperature` > 0.
int32_t SampleToken(std::span<const float> logits, float temperature, double uniform);

}  // namespace voxrt::engine
