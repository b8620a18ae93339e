// Linear layers over int4 and int8 weights with fp32 activations: the weight is exactly quant::Dequantize's (rounded to
// bf16), products and sums are those of fp32 weights (linear_tile-inl.h).
//   few rows   codes become weights in registers: int4 through a table of the 16 values of a group (16 lanes only; for
//              symmetric codes the tables of all scales are made once), int8 by arithmetic
//   many rows  a block of weight rows is dequantized into cache once and meets all activation rows there
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_dequant_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include <bit>
#include <memory>

#include "backend/cpu/linear_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VI = hn::Vec<DI>;

// To bf16 and back, ties to even; finite values.
HWY_INLINE VF RoundToBf16(VF v) {
  const DU du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
  return hn::BitCast(DF(), hn::And(rounded, hn::Set(du, 0xffff0000)));
}

HWY_INLINE VF Symmetric(VI code, VF scale) { return RoundToBf16(hn::Mul(hn::ConvertTo(DF(), code), scale)); }

// (code - 8) scale + zero with a single rounding to bf16: the fp32 sum is made odd where it was inexact, so that the
// second rounding sees on which side of a tie the exact value lies.
HWY_INLINE VF Asymmetric(VI code, VF scale, VF zero) {
  const DF d;
  const DI di;
  const VF product = hn::Mul(hn::ConvertTo(d, hn::Sub(code, hn::Set(di, 8))), scale);  // exact: 4 x 8 bits
  const VF sum = hn::Add(product, zero);
  const VF back = hn::Sub(sum, product);
  const VF error = hn::Add(hn::Sub(product, hn::Sub(sum, back)), hn::Sub(zero, back));  // exact, Knuth's two-sum
  const VI bits = hn::BitCast(di, sum);
  const VF none = hn::Zero(d);
  const auto even = hn::Eq(hn::And(bits, hn::Set(di, 1)), hn::Zero(di));
  const auto inexact = hn::Ne(error, none);
  const auto outwards = hn::Eq(hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(error, none))),
                               hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(sum, none))));
  const VI step = hn::IfThenElse(outwards, hn::Set(di, 1), hn::Set(di, -1));
  const VI nudge = hn::IfThenElseZero(hn::And(even, hn::RebindMask(di, inexact)), step);
  return RoundToBf16(hn::BitCast(d, hn::Add(bits, nudge)));
}

// Stored bytes of one matrix and where its rows lie.
struct Codes {
  const uint8_t* data;
  const uint16_t* scale;
  const uint16_t* zero;  // asymmetric int4 only, laid out like scale
  quant::FormatKind kind;
  int64_t cols;
  int group_shift;  // log2 of the columns per scale; 62: one scale per row

  bool nibbles() const { return kind != quant::FormatKind::kInt8; }
  const uint8_t* Row(int64_t row) const { return data + row * (nibbles() ? cols / 2 : cols); }
  int64_t FirstScale(int64_t row) const { return row * (group_shift == 62 ? 1 : cols >> group_shift); }
};

Codes MakeCodes(const LinearJob& job, bool pair) {
  return {static_cast<const uint8_t*>(pair ? job.pair : job.weight),
          pair ? job.pair_scale : job.scale,
          pair ? job.pair_zero : job.zero,
          job.format.kind,
          job.cols,
          job.format.group == 0 ? 62 : std::countr_zero(static_cast<uint32_t>(job.format.group))};
}

HWY_INLINE VF Value(const Codes& codes, VI stored, VF scale, VF zero) {
  if (codes.kind == quant::FormatKind::kInt4Tile) return Asymmetric(stored, scale, zero);
  if (codes.kind == quant::FormatKind::kInt4) stored = hn::Sub(stored, hn::Set(DI(), 8));
  return Symmetric(stored, scale);
}

// out[0..cols).
void DequantizeInto(const Codes& codes, int64_t row, float* out) {
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DF> du8;
  const hn::Rebind<int8_t, DF> d8;
  const uint8_t* bytes = codes.Row(row);
  const int64_t first = codes.FirstScale(row);
  const auto scale_at = [&](int64_t k) { return first + (k >> codes.group_shift); };
  if (codes.nibbles()) {
    for (int64_t k = 0; k < codes.cols; k += 32, bytes += 16) {
      const VF scale = hn::Set(d, quant::BF16ToF32(codes.scale[scale_at(k)]));
      const VF zero = hn::Set(d, codes.zero != nullptr ? quant::BF16ToF32(codes.zero[scale_at(k)]) : 0.0f);
      for (int64_t j = 0; j < 16; j += kL) {
        const VI both = hn::PromoteTo(di, hn::LoadU(du8, bytes + j));
        hn::StoreU(Value(codes, hn::And(both, hn::Set(di, 15)), scale, zero), d, out + k + j);
        hn::StoreU(Value(codes, hn::ShiftRight<4>(both), scale, zero), d, out + k + 16 + j);
      }
    }
    return;
  }
  int64_t k = 0;
  for (; k + kL <= codes.cols; k += kL) {
    const VF scale = hn::Set(d, quant::BF16ToF32(codes.scale[scale_at(k)]));
    const VI code = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(bytes) + k));
    hn::StoreU(Symmetric(code, scale), d, out + k);
  }
  for (; k < codes.cols; ++k) {
    out[k] = quant::RoundToBF16(static_cast<float>(static_cast<int8_t>(bytes[k])) *
                                quant::BF16ToF32(codes.scale[scale_at(k)]));
  }
}

// The 16 weights of every bf16 scale, [65536, 16] (4 MB): a group's table is one load instead of eight operations. The
// scales of a model lie within a few powers of two, so that what is used of it stays in the second-level cache.
const float* SymmetricValues() {
  static const std::unique_ptr<float[]> values = [] {
    constexpr int32_t kScales = 65536;
    auto out = std::make_unique<float[]>(size_t{kScales} * 16);
    const DF d;
    for (int32_t i = 0; i < kScales; ++i) {
      const VF scale = hn::Set(d, quant::BF16ToF32(static_cast<uint16_t>(i)));
      for (int64_t j = 0; j < 16; j += kL) {
        hn::StoreU(Symmetric(hn::Iota(DI(), static_cast<int32_t>(j) - 8), scale), d, out.get() + i * 16 + j);
      }
    }
    return out;
  }();
  return values.get();
}

struct WidenCodes {
  Codes codes[2];

  HWY_INLINE void operator()(int matrix, int64_t row, int64_t padded, float* out) const {
    DequantizeInto(codes[matrix], row, out);
    std::fill(out + codes[matrix].cols, out + padded, 0.0f);
  }
};

// Codes that become weights while they stream; cols is a multiple of 32.
template <quant::FormatKind kKind>
struct CodesOperand {
  Codes codes;
  const float* x;
  int64_t x_stride;

  const float* values;  // kInt4: SymmetricValues()

  // sum[r * NW + n] = w[n] . in[r]; first[n]: index of the row's first scale.
  template <int NW, int NR>
  HWY_INLINE void Dot(const uint8_t* const* HWY_RESTRICT w, const int64_t* HWY_RESTRICT first, const float* const* in,
                      VF* HWY_RESTRICT acc) const {
    const DF d;
    VF sum[NW * NR];
    VF scale[NW];  // int4: the group's table
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(d);
#pragma GCC unroll 8
    for (int n = 0; n < NW; ++n) scale[n] = hn::Zero(d);  // set at column 0, which compilers do not see
    const int64_t group_mask = (int64_t{1} << codes.group_shift) - 1;
    constexpr int64_t kLine = kKind == quant::FormatKind::kInt8 ? 64 : 128;  // columns
    const int64_t ahead = PrefetchDistance(NW, codes.cols * 64 / kLine);
    PrefetchScales<NW>(first[0]);
    for (int64_t k = 0; k < codes.cols; k += 32) {
      if (k % kLine == 0) {
#pragma GCC unroll 8
        for (int n = 0; n < NW; ++n) PrefetchWeights(w[n] + k * 64 / kLine, ahead);
      }
      if ((k & group_mask) == 0) {
#pragma GCC unroll 8
        for (int n = 0; n < NW; ++n) scale[n] = GroupValues(first[n] + (k >> codes.group_shift));
      }
      if constexpr (kKind == quant::FormatKind::kInt8) {
        Int8Step<NW, NR>(w, in, k, scale, sum);
      } else {
        NibbleStep<NW, NR>(w, in, k, scale, sum);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) acc[i] = sum[i];
  }

  // Those of the rows after these: too little at a time for a prefetcher to follow.
  template <int NW>
  HWY_INLINE void PrefetchScales(int64_t first) const {
    if (codes.group_shift == 62) return;
    const int64_t bytes = NW * (codes.cols >> codes.group_shift) * 2;
    const auto* at = reinterpret_cast<const std::byte*>(codes.scale + first);
    for (int64_t i = 0; i < bytes; i += 64) PrefetchWeights(at + i, std::max<int64_t>(bytes, 1024));
  }

  template <int NW, int NR>
  HWY_INLINE void Int8Step(const uint8_t* const* HWY_RESTRICT w, const float* const* in, int64_t k,
                           const VF* HWY_RESTRICT scale, VF* HWY_RESTRICT sum) const {
    const hn::Rebind<int8_t, DF> d8;
#pragma GCC unroll 8
    for (int64_t part = 0; part < 32; part += kL) {
      VF wide[NW];
#pragma GCC unroll 8
      for (int n = 0; n < NW; ++n) {
        const VI code = hn::PromoteTo(DI(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(w[n]) + k + part));
        wide[n] = Symmetric(code, scale[n]);
      }
      Accumulate<NW, NR>(wide, in, k + part, sum);
    }
  }

  // 32 columns are 16 bytes: the low nibbles, then the high ones.
  template <int NW, int NR>
  HWY_INLINE void NibbleStep(const uint8_t* const* HWY_RESTRICT w, const float* const* in, int64_t k,
                             const VF* HWY_RESTRICT table, VF* HWY_RESTRICT sum) const {
    const hn::Rebind<uint8_t, DF> du8;
    VI both[NW];
    VF wide[NW];
#pragma GCC unroll 8
    for (int n = 0; n < NW; ++n) {
      both[n] = hn::PromoteTo(DI(), hn::LoadU(du8, w[n] + k / 2));
      wide[n] = Lookup16(table[n], both[n]);
    }
    Accumulate<NW, NR>(wide, in, k, sum);
#pragma GCC unroll 8
    for (int n = 0; n < NW; ++n) wide[n] = Lookup16(table[n], hn::ShiftRight<4>(both[n]));
    Accumulate<NW, NR>(wide, in, k + 16, sum);
  }

  // table[index mod 16].
  static HWY_INLINE VF Lookup16(VF table, VI index) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    return VF{_mm512_permutexvar_ps(index.raw, table.raw)};  // looks at the low four bits only
#else
    return hn::TableLookupLanes(table, hn::IndicesFromVec(DF(), hn::And(index, hn::Set(DI(), 15))));
#endif
  }

  template <int NW, int NR>
  HWY_INLINE void Accumulate(const VF* HWY_RESTRICT wide, const float* const* in, int64_t k,
                             VF* HWY_RESTRICT sum) const {
#pragma GCC unroll 4
    for (int r = 0; r < NR; ++r) {
      const VF v = hn::LoadU(DF(), in[r] + k);
#pragma GCC unroll 8
      for (int n = 0; n < NW; ++n) sum[r * NW + n] = hn::MulAdd(wide[n], v, sum[r * NW + n]);
    }
  }

  HWY_INLINE VF GroupValues(int64_t index) const {
    const DF d;
    const uint16_t stored = codes.scale[index];
    if constexpr (kKind == quant::FormatKind::kInt4) return hn::LoadU(d, values + int64_t{stored} * 16);
    const VF scale = hn::Set(d, quant::BF16ToF32(stored));
    if constexpr (kKind == quant::FormatKind::kInt4Tile) {
      return Asymmetric(hn::Iota(DI(), 0), scale, hn::Set(d, quant::BF16ToF32(codes.zero[index])));
    }
    return scale;
  }

  template <int NW, int NR>
  HWY_INLINE std::array<const float*, NR> Inputs(int64_t r, int valid_r) const {
    std::array<const float*, NR> in;
    for (int i = 0; i < NR; ++i) in[static_cast<size_t>(i)] = x + (r + std::min(i, valid_r - 1)) * x_stride;
    return in;
  }

  template <int NW, int NR>
  HWY_NOINLINE VF Sums(int64_t row, int valid_w, const std::array<const float*, NR>& in) const {
    constexpr int kStep = std::min(NW, NR == 1 ? 4 : kMaxAccumulators / NR);
    const uint8_t* w[NW];
    int64_t first[NW];
    for (int n = 0; n < NW; ++n) {
      w[n] = codes.Row(row + std::min(n, valid_w - 1));
      first[n] = codes.FirstScale(row + std::min(n, valid_w - 1));
    }
    VF acc[NW * NR];
    for (int n = 0; n < NW; n += kStep) {
      VF part[kStep * NR];
      Dot<kStep, NR>(w + n, first + n, in.data(), part);
#pragma GCC unroll 16
      for (int i = 0; i < kStep * NR; ++i) acc[i / kStep * NW + n + i % kStep] = part[i];
    }
    return ReduceLanes(acc);
  }
};

template <class Sink>
void RunCodes(const LinearJob& job, WorkerScratch& scratch, Sink sink) {
  const Codes codes = MakeCodes(job, false);
  const Codes pair = MakeCodes(job, true);
  const auto in_place = [&](auto kind) HWY_ATTR {
    using Operand = CodesOperand<decltype(kind)::value>;
    const float* values = kind == quant::FormatKind::kInt4 ? SymmetricValues() : nullptr;
    RunInPlace(Operand{codes, job.x, job.x_stride, values}, Operand{pair, job.x, job.x_stride, values}, job, kL, sink);
  };
  if (job.rows < kManyRows && job.cols % 32 == 0) {
    using quant::FormatKind;
    if (job.format.kind == FormatKind::kInt8) return in_place(std::integral_constant<FormatKind, FormatKind::kInt8>());
    if constexpr (kLanes == 16) {  // a table in one register
      if (job.format.kind == FormatKind::kInt4)
        return in_place(std::integral_constant<FormatKind, FormatKind::kInt4>());
      return in_place(std::integral_constant<FormatKind, FormatKind::kInt4Tile>());
    }
  }
  RunWidened(job, scratch, WidenCodes{{codes, pair}}, sink);
}

void LinearDequantized(const LinearJob& job, WorkerScratch& scratch) {
  if (job.pair != nullptr) return RunCodes(job, scratch, PairSink(job));
  if (job.best_value != nullptr) return RunCodes(job, scratch, ArgMaxSink(job, scratch.lanes));
  RunCodes(job, scratch, StoreSink(job));
}

void DequantizeOne(const LinearJob& job, int64_t row, float* out) { DequantizeInto(MakeCodes(job, false), row, out); }

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(LinearDequantized);
HWY_EXPORT(DequantizeOne);

void RunLinearDequantized(const LinearJob& job, WorkerScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(LinearDequantized)(job, scratch);
}
void DequantizeRow(const LinearJob& job, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(DequantizeOne)(job, row, out);
}

}  // namespace voxrt::backend::cpu
#endif
