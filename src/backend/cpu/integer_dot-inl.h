// int8 activations against int4 and int8 codes: the integer dot products and the form of a quantized activation row,
// shared by the products (linear_integer_kernel.cc) and what prepares them (quantize_kernel.cc).
#if defined(VOXRT_BACKEND_CPU_INTEGER_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOXRT_BACKEND_CPU_INTEGER_DOT_INL_H_
#undef VOXRT_BACKEND_CPU_INTEGER_DOT_INL_H_
#else
#define VOXRT_BACKEND_CPU_INTEGER_DOT_INL_H_
#endif

#include "backend/cpu/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VU8 = hn::Vec<DU8>;
using DI8 = hn::Repartition<int8_t, DF>;
using VI8 = hn::Vec<DI8>;
constexpr int64_t kBytes = 4 * static_cast<int64_t>(kLanes);  // of a vector
constexpr int64_t kLaneBlocks = kBytes / 16;                  // 128-bit parts of a vector

// acc lane i += sum of u[4i..4i+3] x[4i..4i+3]; every target keeps products within their 128-bit part.
HWY_INLINE VI DotBytes(VI acc, VU8 u, VI8 x) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_dpbusd_epi32(acc.raw, u.raw, x.raw)};
#else
  const hn::Repartition<int16_t, DF> d16;
  const hn::Repartition<uint16_t, DF> du16;
  const auto u_even = hn::BitCast(d16, hn::And(hn::BitCast(du16, u), hn::Set(du16, 0x00ff)));
  const auto u_odd = hn::BitCast(d16, hn::ShiftRight<8>(hn::BitCast(du16, u)));
  const auto x_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, x)));
  const auto x_odd = hn::ShiftRight<8>(hn::BitCast(d16, x));
  VI rest = hn::Zero(DI());
  acc = hn::ReorderWidenMulAccumulate(DI(), u_even, x_even, acc, rest);
  acc = hn::ReorderWidenMulAccumulate(DI(), u_odd, x_odd, acc, rest);
  return hn::Add(acc, rest);
#endif
}

// The same for u <= 15, whose products of neighbours fit 16 bits.
HWY_INLINE VI DotNibbles(VI acc, VU8 u, VI8 x) {
#if HWY_TARGET == HWY_AVX2
  return hn::Add(acc, VI{_mm256_madd_epi16(_mm256_maddubs_epi16(u.raw, x.raw), _mm256_set1_epi16(1))});
#elif HWY_TARGET == HWY_SSE4
  return hn::Add(acc, VI{_mm_madd_epi16(_mm_maddubs_epi16(u.raw, x.raw), _mm_set1_epi16(1))});
#elif HWY_TARGET == HWY_AVX3
  return hn::Add(acc, VI{_mm512_madd_epi16(_mm512_maddubs_epi16(u.raw, x.raw), _mm512_set1_epi16(1))});
#else
  return DotBytes(acc, u, x);
#endif
}

HWY_INLINE int64_t Padded(int64_t cols) { return (cols + 127) / 128 * 128; }

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
