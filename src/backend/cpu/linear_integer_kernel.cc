// Linear layers over int4 and int8 weights with int8 activations (docs/model.md 12.3):
//
//   y[n] = sx sum_g s[n,g] sum_k (qx[k] - zx) q[n,k] = sx ( sum_g s[n,g] I[n,g] - zx S[n] ),  S[n] = sum_g s[n,g] sum_k
//   q[n,k]
//
// I is exact in int32: stored codes are taken as unsigned bytes u (q + 8 or q + 128) against signed activations, and
// the surplus, -8 or -128 times the sum of qx, is the value an accumulator starts from (computed once per activation
// row). S is computed once per weight. With one scale per row everything before the last conversion is integer.
//
// Order of a quantized activation row (QuantizeRow), V = bytes of a vector: int8 natural; int4 in blocks of 2 V
// columns, the columns that meet low nibbles first (docs/model.md 12.7 pairs column j with j + 16 of a run of 32).
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_integer_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/linear_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VU8 = hn::Vec<DU8>;
using DI8 = hn::Repartition<int8_t, DF>;
using VI8 = hn::Vec<DI8>;
constexpr int64_t kBytes = 4 * kL;            // of a vector
constexpr int64_t kLaneBlocks = kBytes / 16;  // 128-bit parts of a vector

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

// kCount bf16 scales as fp32, one for each kLaneBlocks / kCount consecutive 128-bit parts.
template <int kCount>
HWY_INLINE VF LoadScales(const uint16_t* HWY_RESTRICT scale) {
  if constexpr (kCount == 1) {
    return hn::Set(DF(), quant::BF16ToF32(*scale));
  } else {
    alignas(64) static constexpr auto kPattern = [] {
      std::array<uint8_t, kBytes> pattern{};
      for (size_t i = 0; i < pattern.size(); ++i) {
        const size_t index = i / 16 * kCount / kLaneBlocks;
        pattern[i] = static_cast<uint8_t>(i % 4 < 2 ? 0x80 : 2 * index + i % 2);  // bf16 is the upper half of an fp32
      }
      return pattern;
    }();
    const DU8 d8;
    VU8 packed;
    if constexpr (kCount == 2) {
      uint32_t bits;
      std::memcpy(&bits, scale, sizeof(bits));
      packed = hn::BitCast(d8, hn::Set(hn::RebindToUnsigned<DF>(), bits));
    } else {
      static_assert(kCount == 4);
      uint64_t bits;
      std::memcpy(&bits, scale, sizeof(bits));
      packed = hn::BitCast(d8, hn::Set(hn::Repartition<uint64_t, DF>(), bits));
    }
    return hn::BitCast(DF(), hn::TableLookupBytesOr0(packed, hn::Load(d8, kPattern.data())));
  }
}

// A quantized activation row: codes [padded], offsets of the accumulators [padded / 4] int32, then scale, zero and the
// sum of all codes (as floats; exact).
struct QuantizedView {
  const int8_t* codes;
  const int32_t* offsets;
  const float* tail;

  QuantizedView() = default;
  QuantizedView(const std::byte* row, int64_t padded)
      : codes(reinterpret_cast<const int8_t*>(row)),
        offsets(reinterpret_cast<const int32_t*>(row + padded)),
        tail(reinterpret_cast<const float*>(row + 2 * padded)) {}
};

HWY_INLINE int64_t Padded(int64_t cols) { return (cols + 127) / 128 * 128; }

// Lanes [NR][NW] of value[r].
template <int NW, int NR>
HWY_INLINE VF PerActivation(const QuantizedView* x, int item) {
  if constexpr (NR == 1) {
    return hn::Set(DF(), x[0].tail[item]);
  } else {
    HWY_ALIGN float buffer[kLanes];
    for (int i = 0; i < static_cast<int>(kLanes); ++i) buffer[i] = x[i / NW].tail[item];
    return hn::Load(DF(), buffer);
  }
}

// The activation rows of a tile with what concerns them alone.
template <int NW, int NR>
struct QuantizedInputs {
  QuantizedView rows[NR];
  VF scale;  // [NR][NW]
  VF zero;
  VF code_sum;

  HWY_INLINE QuantizedInputs(const std::byte* x, int64_t cols, int64_t r, int valid_r) {
    for (int i = 0; i < NR; ++i) {
      rows[i] = QuantizedView(x + (r + std::min(i, valid_r - 1)) * QuantizedRowBytes(cols), Padded(cols));
    }
    scale = PerActivation<NW, NR>(rows, 0);
    zero = PerActivation<NW, NR>(rows, 1);
    code_sum = PerActivation<NW, NR>(rows, 2);
  }
};

template <int NW>
HWY_INLINE VF PerWeight(const float* values, int64_t row, int valid_w) {
  return TileBias<NW>(values + row, valid_w);
}

// Scales per group of a power of two columns; kScales of them within one block.
template <bool kNibbles, int kScales>
struct IntegerOperand {
  const uint8_t* weight;
  const uint16_t* scale;
  const float* sums;
  int64_t cols;
  int group_shift;  // log2 of the columns per scale
  const std::byte* x;

  static constexpr int64_t kBlock = kNibbles ? 2 * kBytes : kBytes;  // columns per vector of weights

  int64_t row_bytes() const { return kNibbles ? cols / 2 : cols; }
  int64_t row_scales() const { return cols >> group_shift; }

  // One vector of weight bytes of each row against each activation row; `b` counts blocks of the activations.
  template <int NW, int NR>
  HWY_INLINE void Step(const uint8_t* const* HWY_RESTRICT w, const uint16_t* const* HWY_RESTRICT s,
                       const QuantizedView* in, int64_t b, VF* HWY_RESTRICT sum) const {
    const DU8 d8;
    VU8 low[NW];
    VU8 high[NW];
    VF scales[NW];
#pragma GCC unroll 8
    for (int n = 0; n < NW; ++n) {
      const VU8 v = hn::LoadU(d8, w[n]);
      if constexpr (kNibbles) {
        low[n] = hn::And(v, hn::Set(d8, 0x0f));
        high[n] = hn::ShiftRight<4>(v);
      } else {
        low[n] = hn::Xor(v, hn::Set(d8, 0x80));
      }
      scales[n] = LoadScales<kScales>(s[n]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < NR; ++r) {
      const VI offset = hn::Load(DI(), in[r].offsets + b * kL);
      const VI8 first = hn::Load(DI8(), in[r].codes + b * kBlock);
      VI8 second = first;
      if constexpr (kNibbles) second = hn::Load(DI8(), in[r].codes + b * kBlock + kBytes);
#pragma GCC unroll 8
      for (int n = 0; n < NW; ++n) {
        const VI dot =
            kNibbles ? DotNibbles(DotNibbles(offset, low[n], first), high[n], second) : DotBytes(offset, low[n], first);
        sum[r * NW + n] = hn::MulAdd(hn::ConvertTo(DF(), dot), scales[n], sum[r * NW + n]);
      }
    }
  }

  template <int NW, int NR>
  HWY_INLINE void Dot(const uint8_t* const* rows, const uint16_t* const* row_scale, const QuantizedView* in,
                      VF* acc) const {
    VF sum[NW * NR];
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(DF());
    const uint8_t* w[NW];
    const uint16_t* s[NW];
    const int64_t blocks = cols / kBlock;
    const int64_t ahead = NW == 1 ? kStreamAhead : PrefetchDistance(NW, row_bytes());
    if constexpr (NW == 1) PrefetchScales(row_scale[0]);
    for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 8
      for (int n = 0; n < NW; ++n) {
        PrefetchWeights(rows[n] + b * kBytes, ahead);
        w[n] = rows[n] + b * kBytes;
        s[n] = row_scale[n] + (b * kBlock >> group_shift);
      }
      Step<NW, NR>(w, s, in, b, sum);
    }
    if (HWY_UNLIKELY(blocks * kBlock < cols)) {  // a copy, so that the sums above stay in registers
      VF rest[NW * NR];
#pragma GCC unroll 16
      for (int i = 0; i < NW * NR; ++i) rest[i] = sum[i];
      Tail<NW, NR>(rows, row_scale, in, blocks, rest);
#pragma GCC unroll 16
      for (int i = 0; i < NW * NR; ++i) sum[i] = rest[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) acc[i] = sum[i];
  }

  // Those of the fourth row after this one: too little at a time for a prefetcher to follow.
  HWY_INLINE void PrefetchScales(const uint16_t* row_scale) const {
    const int64_t bytes = row_scales() * 2;
    for (int64_t i = 0; i < bytes; i += 64)
      PrefetchWeights(reinterpret_cast<const std::byte*>(row_scale) + i, 4 * bytes);
  }

  // The last, incomplete block: missing weights are zeros, missing scales finite.
  template <int NW, int NR>
  HWY_NOINLINE void Tail(const uint8_t* const* rows, const uint16_t* const* row_scale, const QuantizedView* in,
                         int64_t b, VF* sum) const {
    HWY_ALIGN uint8_t bytes[NW][kBytes];
    uint16_t scales[NW][4] = {};
    const uint8_t* w[NW];
    const uint16_t* s[NW];
    const int64_t first_scale = b * kBlock >> group_shift;
    for (int n = 0; n < NW; ++n) {
      std::memset(bytes[n], kNibbles ? 0x88 : 0, kBytes);
      std::memcpy(bytes[n], rows[n] + b * kBytes, static_cast<size_t>(row_bytes() - b * kBytes));
      for (int64_t i = 0; i < kScales && first_scale + i < row_scales(); ++i)
        scales[n][i] = row_scale[n][first_scale + i];
      w[n] = bytes[n];
      s[n] = scales[n];
    }
    Step<NW, NR>(w, s, in, b, sum);
  }

  template <int NW, int NR>
  HWY_INLINE QuantizedInputs<NW, NR> Inputs(int64_t r, int valid_r) const {
    return QuantizedInputs<NW, NR>(x, cols, r, valid_r);
  }

  template <int NW, int NR>
  HWY_NOINLINE VF Sums(int64_t row, int valid_w, const QuantizedInputs<NW, NR>& in) const {
    // A single activation row is limited by memory, where one stream of weights comes in faster than four.
    constexpr int kStep = NR == 1 ? 1 : std::min(NW, 4);
    const uint8_t* w[NW];
    const uint16_t* s[NW];
    RowPointers<NW>(weight + row * row_bytes(), row_bytes(), valid_w, w);
    RowPointers<NW>(scale + row * row_scales(), row_scales(), valid_w, s);
    VF acc[NW * NR];
    for (int n = 0; n < NW; n += kStep) {
      VF part[kStep * NR];
      Dot<kStep, NR>(w + n, s + n, in.rows, part);
#pragma GCC unroll 16
      for (int i = 0; i < kStep * NR; ++i) acc[i / kStep * NW + n + i % kStep] = part[i];
    }
    return hn::Mul(hn::NegMulAdd(in.zero, PerWeight<NW>(sums, row, valid_w), ReduceLanes(acc)), in.scale);
  }
};

// One scale per row of int8 weights: integer to the end.
struct RowScaleOperand {
  const int8_t* weight;
  const uint16_t* scale;
  const float* sums;  // of the codes of a row
  int64_t cols;
  const std::byte* x;

  template <int NW, int NR>
  HWY_INLINE void Dot(const int8_t* const* HWY_RESTRICT w, const QuantizedView* in, VI* HWY_RESTRICT acc) const {
    const DU8 d8;
    VI sum[NW * NR];
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(DI());
    const int64_t ahead = PrefetchDistance(NW, cols);
    for (int64_t k = 0; k < cols; k += kBytes) {
      VU8 bytes[NW];
#pragma GCC unroll 8
      for (int n = 0; n < NW; ++n) {
        PrefetchWeights(w[n] + k, ahead);
        VU8 v;
        if (k + kBytes <= cols) {
          v = hn::BitCast(d8, hn::LoadU(DI8(), w[n] + k));
        } else {
          HWY_ALIGN int8_t rest[kBytes] = {};
          std::memcpy(rest, w[n] + k, static_cast<size_t>(cols - k));
          v = hn::BitCast(d8, hn::Load(DI8(), rest));
        }
        bytes[n] = hn::Xor(v, hn::Set(d8, 0x80));
      }
#pragma GCC unroll 4
      for (int r = 0; r < NR; ++r) {
        const VI8 codes = hn::Load(DI8(), in[r].codes + k);
#pragma GCC unroll 8
        for (int n = 0; n < NW; ++n) sum[r * NW + n] = DotBytes(sum[r * NW + n], bytes[n], codes);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) acc[i] = sum[i];
  }

  template <int NW, int NR>
  HWY_INLINE QuantizedInputs<NW, NR> Inputs(int64_t r, int valid_r) const {
    return QuantizedInputs<NW, NR>(x, cols, r, valid_r);
  }

  template <int NW, int NR>
  HWY_NOINLINE VF Sums(int64_t row, int valid_w, const QuantizedInputs<NW, NR>& in) const {
    constexpr int kStep = std::min(NW, NR == 1 ? 8 : kMaxAccumulators / NR);
    const int8_t* w[NW];
    RowPointers<NW>(weight + row * cols, cols, valid_w, w);
    VI acc[NW * NR];
    for (int n = 0; n < NW; n += kStep) {
      VI part[kStep * NR];
      Dot<kStep, NR>(w + n, in.rows, part);
#pragma GCC unroll 16
      for (int i = 0; i < kStep * NR; ++i) acc[i / kStep * NW + n + i % kStep] = part[i];
    }
    const DI di;
#pragma GCC unroll 8
    for (size_t n = kLanes / 2; n >= 1; n /= 2) {
#pragma GCC unroll 16
      for (size_t i = 0; i < n; ++i) {
        acc[i] = hn::Add(hn::ConcatEven(di, acc[2 * i + 1], acc[2 * i]), hn::ConcatOdd(di, acc[2 * i + 1], acc[2 * i]));
      }
    }
    // I = sum u qx - 128 sum qx - zx sum q, all exact.
    const VI zero = hn::ConvertTo(di, in.zero);
    const VI code_sum = hn::ConvertTo(di, in.code_sum);
    const VI weight_sum = hn::ConvertTo(di, PerWeight<NW>(sums, row, valid_w));
    const VI exact = hn::Sub(hn::Sub(acc[0], hn::ShiftLeft<7>(code_sum)), hn::Mul(zero, weight_sum));
    HWY_ALIGN float scales[kLanes];
    for (int i = 0; i < static_cast<int>(kLanes); ++i) {
      scales[i] = quant::BF16ToF32(scale[row + std::min(i % NW, valid_w - 1)]);
    }
    const VF y = hn::Mul(hn::ConvertTo(DF(), exact), hn::Load(DF(), scales));
    return hn::Mul(y, in.scale);
  }
};

// Rows of stored bytes that stay in cache while all activation rows pass.
constexpr int64_t kBlockBytes = 131072;

template <class Operand>
void RunOperand(const LinearJob& job, WorkerScratch& scratch, const Operand& operand, const Operand& pair) {
  const int64_t row_bytes = job.format.kind == quant::FormatKind::kInt4 ? job.cols / 2 : job.cols;
  const int64_t block = job.rows <= 4 ? kL : std::max(kL, kBlockBytes / row_bytes / kL * kL);
  if (job.pair != nullptr) {
    PairSink sink(job);
    return RunInPlace(operand, pair, job, block, sink);
  }
  if (job.best_value != nullptr) {
    ArgMaxSink sink(job, scratch.lanes);
    return RunInPlace(operand, pair, job, block, sink);
  }
  StoreSink sink(job);
  RunInPlace(operand, pair, job, block, sink);
}

template <bool kNibbles, int kScales>
void RunGrouped(const LinearJob& job, WorkerScratch& scratch) {
  using Operand = IntegerOperand<kNibbles, kScales>;
  const auto* w = static_cast<const uint8_t*>(job.weight);
  const auto* p = static_cast<const uint8_t*>(job.pair);
  const int shift = std::countr_zero(static_cast<uint32_t>(job.format.group));
  RunOperand(job, scratch, Operand{w, job.scale, job.sums, job.cols, shift, job.quantized},
             Operand{p, job.pair_scale, job.pair_sums, job.cols, shift, job.quantized});
}

void LinearInteger(const LinearJob& job, WorkerScratch& scratch) {
  if (job.format.kind == quant::FormatKind::kInt8 && job.format.group == 0) {
    const auto* w = static_cast<const int8_t*>(job.weight);
    const auto* p = static_cast<const int8_t*>(job.pair);
    return RunOperand(job, scratch, RowScaleOperand{w, job.scale, job.sums, job.cols, job.quantized},
                      RowScaleOperand{p, job.pair_scale, job.pair_sums, job.cols, job.quantized});
  }
  const bool nibbles = job.format.kind == quant::FormatKind::kInt4;
  const int64_t scales = (nibbles ? 2 * kBytes : kBytes) / job.format.group;  // within a block
  if (nibbles) {
    if constexpr (kLaneBlocks >= 4) {
      if (scales >= 4) return RunGrouped<true, 4>(job, scratch);
    }
    if constexpr (kLaneBlocks >= 2) {
      if (scales >= 2) return RunGrouped<true, 2>(job, scratch);
    }
    return RunGrouped<true, 1>(job, scratch);
  }
  if constexpr (kLaneBlocks >= 4) {
    if (scales >= 2) return RunGrouped<false, 2>(job, scratch);
  }
  RunGrouped<false, 1>(job, scratch);
}

// Sum of the codes of `bytes` stored bytes (a multiple of 16 for nibbles).
HWY_INLINE int64_t CodeSum(const uint8_t* data, int64_t bytes, bool nibbles) {
  const DU8 d8;
  const VI8 ones = hn::Set(DI8(), 1);
  VI sum = hn::Zero(DI());
  int64_t i = 0;
  for (; i + kBytes <= bytes; i += kBytes) {
    const VU8 v = hn::LoadU(d8, data + i);
    sum = nibbles ? DotNibbles(DotNibbles(sum, hn::And(v, hn::Set(d8, 0x0f)), ones), hn::ShiftRight<4>(v), ones)
                  : DotBytes(sum, hn::Xor(v, hn::Set(d8, 0x80)), ones);
  }
  int64_t total = hn::GetLane(hn::SumOfLanes(DI(), sum));
  for (; i < bytes; ++i) total += nibbles ? (data[i] & 15) + (data[i] >> 4) : (data[i] ^ 0x80);
  return total - bytes * (nibbles ? 16 : 128);
}

float WeightSumOne(const LinearJob& job, int64_t row) {
  const bool nibbles = job.format.kind == quant::FormatKind::kInt4;
  const int64_t row_bytes = nibbles ? job.cols / 2 : job.cols;
  const auto* data = static_cast<const uint8_t*>(job.weight) + row * row_bytes;
  if (job.format.group == 0) return static_cast<float>(CodeSum(data, row_bytes, nibbles));
  const int64_t group_bytes = nibbles ? job.format.group / 2 : job.format.group;
  const int64_t groups = job.cols / job.format.group;
  double sum = 0.0;
  for (int64_t g = 0; g < groups; ++g) {
    sum += static_cast<double>(quant::BF16ToF32(job.scale[row * groups + g])) *
           static_cast<double>(CodeSum(data + g * group_bytes, group_bytes, nibbles));
  }
  return static_cast<float>(sum);
}

// docs/model.md 12.3 in fp32, step by step as written there.
void QuantizeOne(const float* x, int64_t cols, quant::FormatKind kind, std::byte* out) {
  const DF d;
  VF low = hn::Zero(d);
  VF high = hn::Zero(d);
  int64_t k = 0;
  for (; k + kL <= cols; k += kL) {
    const VF v = hn::LoadU(d, x + k);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
  }
  float lo = hn::GetLane(hn::MinOfLanes(d, low));
  float hi = hn::GetLane(hn::MaxOfLanes(d, high));
  for (; k < cols; ++k) {
    lo = std::min(lo, x[k]);
    hi = std::max(hi, x[k]);
  }
  const float scale = std::max((hi - lo) / 255.0f, std::numeric_limits<float>::min());
  const float zero = std::clamp(-128.0f - std::nearbyint(lo / scale), -128.0f, 127.0f);
  const VF inverse = hn::Set(d, 1.0f / scale);
  const hn::Rebind<int8_t, DF> d8;
  const auto quantize = [&](VF v) HWY_ATTR {
    const VF code = hn::Add(hn::Round(hn::Mul(v, inverse)), hn::Set(d, zero));
    return hn::DemoteTo(d8, hn::ConvertTo(DI(), hn::Min(hn::Max(code, hn::Set(d, -128.0f)), hn::Set(d, 127.0f))));
  };
  const int64_t padded = Padded(cols);
  auto* codes = reinterpret_cast<int8_t*>(out);
  std::memset(codes, 0, static_cast<size_t>(padded));
  const bool nibbles = kind == quant::FormatKind::kInt4;
  // Runs of 32: the half h of run i of a block goes to h * kBytes + 16 i.
  const auto place = [&](int64_t at) {
    if (!nibbles) return at;
    const int64_t block = at / (2 * kBytes) * (2 * kBytes);
    const int64_t in_block = at - block;
    return block + (in_block % 32 / 16) * kBytes + in_block / 32 * 16 + in_block % 16;
  };
  for (k = 0; k + kL <= cols; k += kL) hn::StoreU(quantize(hn::LoadU(d, x + k)), d8, codes + place(k));
  for (; k < cols; ++k) {
    HWY_ALIGN int8_t one[kLanes];
    hn::StoreU(quantize(hn::Set(d, x[k])), d8, one);
    codes[place(k)] = one[0];
  }
  auto* offsets = reinterpret_cast<int32_t*>(out + padded);
  const VU8 ones = hn::Set(DU8(), 1);
  VI total = hn::Zero(DI());
  const int64_t blocks = padded / (nibbles ? 2 * kBytes : kBytes);
  for (int64_t b = 0; b < blocks; ++b) {
    VI sum = hn::Zero(DI());
    if (nibbles) {
      sum = DotBytes(DotBytes(sum, ones, hn::Load(DI8(), codes + 2 * b * kBytes)), ones,
                     hn::Load(DI8(), codes + (2 * b + 1) * kBytes));
      hn::Store(hn::Neg(hn::ShiftLeft<3>(sum)), DI(), offsets + b * kL);
    } else {
      sum = DotBytes(sum, ones, hn::Load(DI8(), codes + b * kBytes));
      hn::Store(hn::Neg(hn::ShiftLeft<7>(sum)), DI(), offsets + b * kL);
    }
    total = hn::Add(total, sum);
  }
  auto* tail = reinterpret_cast<float*>(out + 2 * padded);
  tail[0] = scale;
  tail[1] = zero;
  tail[2] = static_cast<float>(hn::GetLane(hn::SumOfLanes(DI(), total)));
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(LinearInteger);
HWY_EXPORT(QuantizeOne);
HWY_EXPORT(WeightSumOne);

int64_t QuantizedRowBytes(int64_t cols) { return 2 * ((cols + 127) / 128 * 128) + 64; }

void QuantizeRow(const float* x, int64_t cols, quant::FormatKind kind, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(QuantizeOne)(x, cols, kind, out);
}
float WeightSum(const LinearJob& job, int64_t row) { return HWY_DYNAMIC_DISPATCH(WeightSumOne)(job, row); }
void RunLinearInteger(const LinearJob& job, WorkerScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(LinearInteger)(job, scratch);
}

}  // namespace voxrt::backend::cpu
#endif
