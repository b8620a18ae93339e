// Linear layers over int4 and int8 weights with int8 activations (docs/model.md 12.3):
//
//   y[n] = sx sum_g s[n,g] sum_k (qx[k] - zx) q[n,k] = sx ( sum_g s[n,g] I[n,g] - zx S[n] ),  S[n] = sum_g s[n,g] sum_k
//   q[n,k]
//
// I is exact in int32: stored codes are taken as unsigned bytes u (q + 8 or q + 128) against signed activations, and
// the surplus, -8 or -128 times the sum of qx, is the value an accumulator starts from (computed once per activation
// row). S is computed once per weight. With one scale per row everything before the last conversion is integer, and
// the activations are the unsigned bytes.
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_integer_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include <array>
#include <bit>
#include <cstring>

#include "backend/cpu/integer_dot-inl.h"
#include "backend/cpu/linear_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kShortRow = 1024;  // bytes of a weight row, up to which several rows at once cost less

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

// A quantized activation row: codes [padded], offsets of the accumulators [padded / 4] int32, then scale and zero.
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

  HWY_INLINE QuantizedInputs(const std::byte* x, int64_t cols, int64_t r, int valid_r) {
    for (int i = 0; i < NR; ++i) {
      rows[i] = QuantizedView(x + (r + std::min(i, valid_r - 1)) * QuantizedRowBytes(cols), Padded(cols));
    }
    scale = PerActivation<NW, NR>(rows, 0);
    zero = PerActivation<NW, NR>(rows, 1);
  }
};

template <int NW>
HWY_INLINE VF PerWeight(const float* values, int64_t row, int valid_w) {
  return TileBias<NW>(values + row, valid_w);
}

// bf16 scales [NW] of weight rows, in every row of the tile.
template <int NW>
HWY_INLINE VF RowScales(const uint16_t* scale, int valid_w) {
  HWY_ALIGN uint16_t bits[kLanes];
  if (HWY_UNLIKELY(valid_w != NW)) {
    for (int n = 0; n < NW; ++n) bits[n] = scale[std::min(n, valid_w - 1)];
    scale = bits;
  }
  const hn::CappedTag<uint16_t, NW> d16;
  const hn::CappedTag<uint32_t, NW> d32;
  HWY_ALIGN float wide[NW];
  hn::Store(hn::BitCast(hn::CappedTag<float, NW>(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, scale)))),
            hn::CappedTag<float, NW>(), wide);
  return LoadRepeated<NW>(wide);
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

  template <int NW, int NR, bool kStreams = false>
  HWY_INLINE void Dot(const uint8_t* const* rows, const uint16_t* const* row_scale, const QuantizedView* in,
                      VF* acc) const {
    VF sum[NW * NR];
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(DF());
    const uint8_t* w[NW];
    const uint16_t* s[NW];
    const int64_t blocks = cols / kBlock;
    const int64_t ahead = NW == 1 ? kStreamAhead : PrefetchDistance(NW, row_bytes());
    if constexpr (NW == 1 || kStreams) {
      for (int n = 0; n < NW; ++n) PrefetchScales(row_scale[n]);
    }
    for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 8
      for (int n = 0; n < NW; ++n) {
        if constexpr (kStreams) {
          PrefetchStream(rows[n] + b * kBytes);
        } else {
          PrefetchWeights(rows[n] + b * kBytes, ahead);
        }
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
    return Finish<NW, NR>(row, valid_w, in, acc);
  }

  template <int NW, int NR>
  HWY_INLINE VF Finish(int64_t row, int valid_w, const QuantizedInputs<NW, NR>& in, VF* acc) const {
    return hn::Mul(hn::NegMulAdd(in.zero, PerWeight<NW>(sums, row, valid_w), ReduceLanes(acc)), in.scale);
  }

  // Sums<lanes, 1> of rows here and of as many rows of `other`, read in two streams.
  HWY_NOINLINE std::array<VF, 2> TwoSums(int64_t row, int valid_w, const IntegerOperand& other, int64_t other_row,
                                         int other_valid_w, const QuantizedInputs<kN, 1>& in) const {
    const uint8_t* w[2][kN];
    const uint16_t* s[2][kN];
    RowPointers<kN>(weight + row * row_bytes(), row_bytes(), valid_w, w[0]);
    RowPointers<kN>(scale + row * row_scales(), row_scales(), valid_w, s[0]);
    RowPointers<kN>(other.weight + other_row * row_bytes(), row_bytes(), other_valid_w, w[1]);
    RowPointers<kN>(other.scale + other_row * row_scales(), row_scales(), other_valid_w, s[1]);
    VF acc[2][kN];
    for (int n = 0; n < kN; ++n) {
      const uint8_t* const rows[2] = {w[0][n], w[1][n]};
      const uint16_t* const scales[2] = {s[0][n], s[1][n]};
      VF part[2];
      Dot<2, 1, true>(rows, scales, in.rows, part);
      acc[0][n] = part[0];
      acc[1][n] = part[1];
    }
    return {Finish<kN, 1>(row, valid_w, in, acc[0]),
            other.template Finish<kN, 1>(other_row, other_valid_w, in, acc[1])};
  }
};

// One scale per row of int8 weights: integer to the end. Here the activations are the unsigned bytes, qx + 128, so that
// weights are multiplied as they are stored.
struct RowScaleOperand {
  const int8_t* weight;
  const uint16_t* scale;
  const float* sums;  // of the codes of a row
  int64_t cols;
  const std::byte* x;

  template <int NW, int NR>
  HWY_INLINE void Step(const int8_t* const* HWY_RESTRICT w, const QuantizedView* in, int64_t k,
                       VI* HWY_RESTRICT sum) const {
    const DI8 d8;
    VU8 codes[NR];
#pragma GCC unroll 4
    for (int r = 0; r < NR; ++r) {
      codes[r] = hn::Xor(hn::BitCast(DU8(), hn::Load(d8, in[r].codes + k)), hn::Set(DU8(), 0x80));
    }
#pragma GCC unroll 16
    for (int n = 0; n < NW; ++n) {
      const VI8 v = hn::LoadU(d8, w[n]);
#pragma GCC unroll 4
      for (int r = 0; r < NR; ++r) sum[r * NW + n] = DotBytes(sum[r * NW + n], codes[r], v);
    }
  }

  template <int NW, int NR, bool kStreams = false>
  HWY_INLINE void Dot(const int8_t* const* rows, const QuantizedView* in, VI* HWY_RESTRICT acc) const {
    VI sum[NW * NR];
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(DI());
    const int64_t ahead = PrefetchDistance(NW, cols);
    const int64_t whole = cols / kBytes * kBytes;
    for (int64_t k = 0; k < whole; k += kBytes) {
      const int8_t* w[NW];
#pragma GCC unroll 16
      for (int n = 0; n < NW; ++n) {
        w[n] = rows[n] + k;
        if constexpr (kStreams) {
          PrefetchStream(w[n]);
        } else {
          PrefetchWeights(w[n], ahead);
        }
      }
      Step<NW, NR>(w, in, k, sum);
    }
    if (HWY_UNLIKELY(whole < cols)) {  // a copy, so that the sums above stay in registers
      VI rest[NW * NR];
#pragma GCC unroll 16
      for (int i = 0; i < NW * NR; ++i) rest[i] = sum[i];
      Tail<NW, NR>(rows, in, whole, rest);
#pragma GCC unroll 16
      for (int i = 0; i < NW * NR; ++i) sum[i] = rest[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) acc[i] = sum[i];
  }

  // The last, incomplete block: missing weights are zeros.
  template <int NW, int NR>
  HWY_NOINLINE void Tail(const int8_t* const* rows, const QuantizedView* in, int64_t k, VI* sum) const {
    HWY_ALIGN int8_t bytes[NW][kBytes] = {};
    const int8_t* w[NW];
    for (int n = 0; n < NW; ++n) {
      std::memcpy(bytes[n], rows[n] + k, static_cast<size_t>(cols - k));
      w[n] = bytes[n];
    }
    Step<NW, NR>(w, in, k, sum);
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
    return Finish<NW, NR>(row, valid_w, in, acc);
  }

  // As IntegerOperand::TwoSums.
  HWY_NOINLINE std::array<VF, 2> TwoSums(int64_t row, int valid_w, const RowScaleOperand& other, int64_t other_row,
                                         int other_valid_w, const QuantizedInputs<kN, 1>& in) const {
    if (cols <= kShortRow) {
      return {Sums<kN, 1>(row, valid_w, in), other.template Sums<kN, 1>(other_row, other_valid_w, in)};
    }
    const int8_t* w[2][kN];
    RowPointers<kN>(weight + row * cols, cols, valid_w, w[0]);
    RowPointers<kN>(other.weight + other_row * cols, cols, other_valid_w, w[1]);
    VI acc[2][kN];
    for (int n = 0; n < kN; ++n) {
      const int8_t* const rows[2] = {w[0][n], w[1][n]};
      VI part[2];
      Dot<2, 1, true>(rows, in.rows, part);
      acc[0][n] = part[0];
      acc[1][n] = part[1];
    }
    return {Finish<kN, 1>(row, valid_w, in, acc[0]),
            other.template Finish<kN, 1>(other_row, other_valid_w, in, acc[1])};
  }

  // I = sum (qx + 128) q - (zx + 128) sum q, all exact.
  template <int NW, int NR>
  HWY_INLINE VF Finish(int64_t row, int valid_w, const QuantizedInputs<NW, NR>& in, VI* acc) const {
    const DI di;
    const VI zero = hn::Add(hn::ConvertTo(di, in.zero), hn::Set(di, 128));
    const VI weight_sum = hn::ConvertTo(di, PerWeight<NW>(sums, row, valid_w));
    const VI exact = hn::Sub(ReduceLanes(acc), hn::Mul(zero, weight_sum));
    return hn::Mul(hn::Mul(hn::ConvertTo(DF(), exact), RowScales<NW>(scale + row, valid_w)), in.scale);
  }
};

// Rows of stored bytes that stay in cache while all activation rows pass.
constexpr int64_t kBlockBytes = 131072;

template <class Operand, class Sink>
HWY_INLINE void RunSink(const Operand& operand, const Operand& pair, const LinearJob& job, int64_t block, Sink sink) {
  if (job.rows == 1) return RunOneRow(operand, pair, job, sink);
  RunInPlace(operand, pair, job, block, sink);
}

template <class Operand>
void RunOperand(const LinearJob& job, WorkerScratch& scratch, const Operand& operand, const Operand& pair) {
  const int64_t row_bytes = job.format.kind == quant::FormatKind::kInt4 ? job.cols / 2 : job.cols;
  const int64_t block = job.rows <= 4 ? kL : std::max(kL, kBlockBytes / row_bytes / kL * kL);
  if (job.pair != nullptr) return RunSink(operand, pair, job, block, PairSink(job));
  if (job.best_value != nullptr) return RunSink(operand, pair, job, block, ArgMaxSink(job, scratch.lanes));
  RunSink(operand, pair, job, block, StoreSink(job));
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

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(LinearInteger);

void RunLinearInteger(const LinearJob& job, WorkerScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(LinearInteger)(job, scratch);
}

}  // namespace voxrt::backend::cpu
#endif
