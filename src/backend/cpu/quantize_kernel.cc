// What linear layers over int8 activations need before their products (linear_integer_kernel.cc): quantized activation
// rows and the sums of weight rows.
//
// Order of a quantized activation row (QuantizeRow), V = bytes of a vector: int8 natural; int4 in blocks of 2 V
// columns, the columns that meet low nibbles first (docs/model.md 12.7 pairs column j with j + 16 of a run of 32).
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/quantize_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/integer_dot-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kL = static_cast<int64_t>(kLanes);

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
  }
  auto* tail = reinterpret_cast<float*>(out + 2 * padded);
  tail[0] = scale;
  tail[1] = zero;
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(QuantizeOne);
HWY_EXPORT(WeightSumOne);

int64_t QuantizedRowBytes(int64_t cols) { return 2 * ((cols + 127) / 128 * 128) + 64; }

void QuantizeRow(const float* x, int64_t cols, quant::FormatKind kind, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(QuantizeOne)(x, cols, kind, out);
}
float WeightSum(const LinearJob& job, int64_t row) { return HWY_DYNAMIC_DISPATCH(WeightSumOne)(job, row); }

}  // namespace voxrt::backend::cpu
#endif
