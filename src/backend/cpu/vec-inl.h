// Vector helpers shared by the CPU kernels, compiled once per instruction set: widening loads and the one reduction
// order. Included after hwy/highway.h inside a foreach_target source.
#if defined(VOXRT_BACKEND_CPU_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOXRT_BACKEND_CPU_VEC_INL_H_
#undef VOXRT_BACKEND_CPU_VEC_INL_H_
#else
#define VOXRT_BACKEND_CPU_VEC_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/kernels.h"
#include "hwy/highway.h"

// Highway 1.0.3 asks the processor for AVX512_VNNI before it chooses AVX3_DL, but does not tell the compiler.
#if HWY_TARGET == HWY_AVX3_DL && !defined(VOXRT_TARGET_STR_WITH_VNNI)
#define VOXRT_TARGET_STR_WITH_VNNI \
  HWY_TARGET_STR_AVX3 ",vpclmulqdq,avx512vbmi,avx512vbmi2,vaes,avxvnni,avx512bitalg,avx512vpopcntdq,avx512vnni"
#endif
#if HWY_TARGET == HWY_AVX3_DL
#undef HWY_TARGET_STR
#define HWY_TARGET_STR VOXRT_TARGET_STR_WITH_VNNI
#endif

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr size_t kLanes = hn::MaxLanes(DF());

// kLanes elements at p as fp32. Exact for every stored type.
HWY_INLINE VF LoadWide(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadWide(const Bf16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &p->bits))));
}
HWY_INLINE VF LoadWide(const F16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::BitCast(dh, hn::LoadU(d16, &p->bits)));
}
HWY_INLINE VF LoadWide(const int8_t* p) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::RebindToSigned<DF> d32;
  return hn::ConvertTo(DF(), hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

// Lane j of the result = sum over the lanes of acc[j], j < kLanes: neighbours first, then neighbours of those, and so
// on. The order is the same for every tile shape, so a dot product has one value however it was tiled.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// One level: lanes whose bit kBit is clear take from a, the others from b; each is added to its neighbour at distance
// kBit.
template <int kBit, class V>
HWY_INLINE V AddNeighbours(V a, V b) {
  constexpr uint16_t kFromB = kBit == 1 ? 0xaaaa : kBit == 2 ? 0xcccc : kBit == 4 ? 0xf0f0 : 0xff00;
  alignas(64) static constexpr int32_t kNeighbour[4][16] = {
      {1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30},
      {2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15, 28, 29},
      {4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27},
      {8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}};
  constexpr int kLevel = kBit == 1 ? 0 : kBit == 2 ? 1 : kBit == 4 ? 2 : 3;
  const hn::DFromV<V> d;
  const __m512 fa = hn::BitCast(DF(), a).raw;
  const __m512 fb = hn::BitCast(DF(), b).raw;
  const VF own{_mm512_mask_blend_ps(kFromB, fa, fb)};
  const VF other{_mm512_permutex2var_ps(fa, _mm512_load_si512(kNeighbour[kLevel]), fb)};
  return hn::Add(hn::BitCast(d, own), hn::BitCast(d, other));
}

template <class V>
HWY_INLINE V ReduceLanes(V* HWY_RESTRICT acc) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) acc[i] = AddNeighbours<1>(acc[2 * i], acc[2 * i + 1]);
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) acc[i] = AddNeighbours<2>(acc[2 * i], acc[2 * i + 1]);
  return AddNeighbours<8>(AddNeighbours<4>(acc[0], acc[1]), AddNeighbours<4>(acc[2], acc[3]));
}
#else
template <class V>
HWY_INLINE V ReduceLanes(V* HWY_RESTRICT acc) {
  const hn::DFromV<V> d;
#pragma GCC unroll 8
  for (size_t n = kLanes / 2; n >= 1; n /= 2) {
#pragma GCC unroll 16
    for (size_t i = 0; i < n; ++i) {
      acc[i] = hn::Add(hn::ConcatEven(d, acc[2 * i + 1], acc[2 * i]), hn::ConcatOdd(d, acc[2 * i + 1], acc[2 * i]));
    }
  }
  return acc[0];
}
#endif

// Pointers to NW rows from `first` on; rows past the valid ones repeat the last valid one.
template <int NW, typename T>
HWY_INLINE void RowPointers(const T* first, int64_t stride, int valid, const T** rows) {
  if (HWY_LIKELY(valid == NW)) {
#pragma GCC unroll 16
    for (int n = 0; n < NW; ++n) rows[n] = first + n * stride;
  } else {
    for (int n = 0; n < NW; ++n) rows[n] = first + (n < valid ? n : valid - 1) * stride;
  }
}

// kCount floats at p repeated over all lanes; kCount divides kLanes.
template <size_t kCount>
HWY_INLINE VF LoadRepeated(const float* p) {
  const DF d;
  if constexpr (kCount == kLanes) {
    return hn::LoadU(d, p);
  } else if constexpr (kCount == 4) {
    return hn::LoadDup128(d, p);
  } else if constexpr (2 * kCount == kLanes) {
    const auto half = hn::LoadU(hn::Half<DF>(), p);
    return hn::Combine(d, half, half);
  } else {
    HWY_ALIGN float buffer[kLanes];
    for (size_t i = 0; i < kLanes; ++i) buffer[i] = p[i % kCount];
    return hn::Load(d, buffer);
  }
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
