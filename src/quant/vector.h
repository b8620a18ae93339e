// Vectors of 8 floats for the loops of the quantizers: compiler vector types, so one source serves SSE, AVX2 and NEON,
// and a fixed order of additions, so that results do not depend on the instruction set. Internal to src/quant.
#pragma once

#include <cstdint>
#include <cstring>

// One body, compiled for two instruction sets and chosen at start. Not under sanitizers (the choosing runs before they
// are ready), nor with clang (it does not inline vector functions into another instruction set); the results are the
// same.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VOXRT_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define VOXRT_CLONES
#endif
#define VOXRT_INLINE __attribute__((always_inline)) inline

namespace voxrt::quant::vector {

inline constexpr int kLanes = 8;

using Vec [[gnu::vector_size(4 * kLanes)]] = float;
using IntVec [[gnu::vector_size(4 * kLanes)]] = int32_t;
using ByteVec [[gnu::vector_size(kLanes)]] = int8_t;

VOXRT_INLINE Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
VOXRT_INLINE void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
VOXRT_INLINE Vec Splat(float x) { return Vec{x, x, x, x, x, x, x, x}; }
VOXRT_INLINE Vec Min(Vec a, Vec b) { return a < b ? a : b; }
VOXRT_INLINE Vec Max(Vec a, Vec b) { return a > b ? a : b; }
VOXRT_INLINE Vec Abs(Vec a) { return (Vec)((IntVec)a & 0x7fffffff); }
// Nearest even integer of a value within +-2^22.
VOXRT_INLINE Vec RoundSmall(Vec x) { return (x + 12582912.0f) - 12582912.0f; }
VOXRT_INLINE Vec RoundClamped(Vec x, float low, float high) { return RoundSmall(Min(Max(x, Splat(low)), Splat(high))); }
VOXRT_INLINE float LaneSum(Vec v) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }
VOXRT_INLINE float LaneMax(Vec v) {
  float largest = v[0];
  for (int lane = 1; lane < kLanes; ++lane) largest = largest < v[lane] ? v[lane] : largest;
  return largest;
}
// Integral values within -128..127 as bytes.
VOXRT_INLINE void StoreBytes(void* p, Vec v) {
  const ByteVec bytes = __builtin_convertvector(__builtin_convertvector(v, IntVec), ByteVec);
  std::memcpy(p, &bytes, sizeof(bytes));
}
// Eight bytes as floats.
VOXRT_INLINE Vec LoadBytes(const int8_t* p) {
  ByteVec bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector(__builtin_convertvector(bytes, IntVec), Vec);
}
// Rounded to bf16, ties to even; finite values only.
VOXRT_INLINE Vec RoundBF16(Vec v) {
  const IntVec bits = (IntVec)v;
  return (Vec)((bits + 0x7fff + ((bits >> 16) & 1)) & ~0xffff);
}

}  // namespace voxrt::quant::vector
