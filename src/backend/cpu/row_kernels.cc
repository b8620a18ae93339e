// Row-wise kernels: norm, rotary embedding, activations, arg-max, widening.
#include <cmath>
#include <limits>

#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/row_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include "backend/cpu/math-inl.h"
#include "backend/cpu/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kL = static_cast<int64_t>(kLanes);

// Applies `op` to whole vectors of x; the tail goes through a padded copy.
template <class Op>
HWY_INLINE void MapRow(const float* x, int64_t count, float* out, Op op) {
  const DF d;
  int64_t i = 0;
  for (; i + kL <= count; i += kL) hn::StoreU(op(hn::LoadU(d, x + i)), d, out + i);
  if (i == count) return;
  HWY_ALIGN float buffer[kLanes] = {};
  for (int64_t j = i; j < count; ++j) buffer[j - i] = x[j];
  hn::Store(op(hn::Load(d, buffer)), d, buffer);
  for (int64_t j = i; j < count; ++j) out[j] = buffer[j - i];
}

struct GeluOp {
  HWY_INLINE VF operator()(VF v) const { return Gelu(v); }
};
struct ExpOp {
  HWY_INLINE VF operator()(VF v) const { return Exp(v); }
};

void GeluOne(const float* x, int64_t count, float* out) { MapRow(x, count, out, GeluOp()); }
void ExpOne(const float* x, int64_t count, float* out) { MapRow(x, count, out, ExpOp()); }

void SiluMulOne(const float* gate, const float* up, int64_t count, float* out) {
  const DF d;
  int64_t i = 0;
  for (; i + kL <= count; i += kL) hn::StoreU(hn::Mul(Silu(hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, out + i);
  if (i == count) return;
  HWY_ALIGN float buffer[kLanes] = {};
  for (int64_t j = i; j < count; ++j) buffer[j - i] = gate[j];
  hn::Store(Silu(hn::Load(d, buffer)), d, buffer);
  for (int64_t j = i; j < count; ++j) out[j] = buffer[j - i] * up[j];
}

void AddOne(const float* x, int64_t count, float* out) {
  const DF d;
  int64_t i = 0;
  for (; i + kL <= count; i += kL) hn::StoreU(hn::Add(hn::LoadU(d, out + i), hn::LoadU(d, x + i)), d, out + i);
  for (; i < count; ++i) out[i] += x[i];
}

void GatherOne(const float* tap0, const float* tap1, const float* tap2, int64_t channels, float* out) {
  const DF d;
  int64_t c = 0;
  for (; c + kL <= channels; c += kL) {
    hn::StoreInterleaved3(hn::LoadU(d, tap0 + c), hn::LoadU(d, tap1 + c), hn::LoadU(d, tap2 + c), d, out + 3 * c);
  }
  for (; c < channels; ++c) {
    out[3 * c] = tap0[c];
    out[3 * c + 1] = tap1[c];
    out[3 * c + 2] = tap2[c];
  }
}

void RmsNormOne(const float* x, const float* gain, const float* scale, float epsilon, int64_t cols, float* out) {
  const DF d;
  VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kL <= cols; i += 4 * kL) {
    for (int64_t u = 0; u < 4; ++u) {
      const VF v = hn::LoadU(d, x + i + u * kL);
      sum[u] = hn::MulAdd(v, v, sum[u]);
    }
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
  for (; i < cols; ++i) total += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(total / static_cast<float>(cols) + epsilon);
  const VF factor = hn::Set(d, inverse);
  i = 0;
  for (; i + kL <= cols; i += kL) {
    VF v = hn::Mul(hn::Mul(hn::LoadU(d, x + i), factor), hn::LoadU(d, gain + i));
    if (scale != nullptr) v = hn::Mul(v, hn::LoadU(d, scale + i));
    hn::StoreU(v, d, out + i);
  }
  for (; i < cols; ++i) {
    const float v = x[i] * inverse * gain[i];
    out[i] = scale != nullptr ? v * scale[i] : v;
  }
}

void RopeHeads(float* v, int64_t heads, int64_t head_dim, RopePairing pairing, const float* cosine, const float* sine) {
  const DF d;
  const int64_t half = head_dim / 2;
  const bool adjacent = pairing == RopePairing::kAdjacent;
  for (int64_t h = 0; h < heads; ++h, v += head_dim) {
    int64_t i = 0;
    for (; i + kL <= half; i += kL) {
      const VF c = hn::LoadU(d, cosine + i);
      const VF s = hn::LoadU(d, sine + i);
      VF a;
      VF b;
      if (adjacent) {
        hn::LoadInterleaved2(d, v + 2 * i, a, b);
      } else {
        a = hn::LoadU(d, v + i);
        b = hn::LoadU(d, v + half + i);
      }
      const VF even = hn::NegMulAdd(b, s, hn::Mul(a, c));
      const VF odd = hn::MulAdd(b, c, hn::Mul(a, s));
      if (adjacent) {
        hn::StoreInterleaved2(even, odd, d, v + 2 * i);
      } else {
        hn::StoreU(even, d, v + i);
        hn::StoreU(odd, d, v + half + i);
      }
    }
    for (; i < half; ++i) {
      float& first = v[adjacent ? 2 * i : i];
      float& second = v[adjacent ? 2 * i + 1 : half + i];
      const float a = first;
      const float b = second;
      first = a * cosine[i] - b * sine[i];
      second = a * sine[i] + b * cosine[i];
    }
  }
}

// Finds the maximum first, then its first place: two light passes instead of index arithmetic in lanes.
int32_t ArgMaxOne(const float* x, int64_t count) {
  const DF d;
  VF best = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kL <= count; i += kL) best = hn::Max(best, hn::LoadU(d, x + i));
  float value = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < count; ++i) value = x[i] > value ? x[i] : value;
  for (i = 0; i < count; ++i) {
    if (x[i] == value) return static_cast<int32_t>(i);
  }
  return 0;
}

void WidenOne(const void* source, quant::DType dtype, int64_t count, float* out) {
  const DF d;
  int64_t i = 0;
  switch (dtype) {
    case quant::DType::kF32:
      for (; i + kL <= count; i += kL) hn::StoreU(LoadWide(static_cast<const float*>(source) + i), d, out + i);
      break;
    case quant::DType::kBF16:
      for (; i + kL <= count; i += kL) hn::StoreU(LoadWide(static_cast<const Bf16*>(source) + i), d, out + i);
      break;
    default:
      for (; i + kL <= count; i += kL) hn::StoreU(LoadWide(static_cast<const F16*>(source) + i), d, out + i);
      break;
  }
  for (; i < count; ++i) out[i] = quant::LoadFloat(source, dtype, static_cast<size_t>(i));
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hwy/targets.h"

namespace voxrt::backend::cpu {
HWY_EXPORT(GeluOne);
HWY_EXPORT(ExpOne);
HWY_EXPORT(SiluMulOne);
HWY_EXPORT(AddOne);
HWY_EXPORT(GatherOne);
HWY_EXPORT(RmsNormOne);
HWY_EXPORT(RopeHeads);
HWY_EXPORT(ArgMaxOne);
HWY_EXPORT(WidenOne);

void GeluRow(const float* x, int64_t count, float* out) { HWY_DYNAMIC_DISPATCH(GeluOne)(x, count, out); }
void ExpRow(const float* x, int64_t count, float* out) { HWY_DYNAMIC_DISPATCH(ExpOne)(x, count, out); }
void SiluMulRow(const float* gate, const float* up, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMulOne)(gate, up, count, out);
}
void AddRow(const float* x, int64_t count, float* out) { HWY_DYNAMIC_DISPATCH(AddOne)(x, count, out); }
void GatherTaps(const float* tap0, const float* tap1, const float* tap2, int64_t channels, float* out) {
  HWY_DYNAMIC_DISPATCH(GatherOne)(tap0, tap1, tap2, channels, out);
}
void RmsNormRow(const float* x, const float* gain, const float* scale, float epsilon, int64_t cols, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormOne)(x, gain, scale, epsilon, cols, out);
}
void RopeRow(float* v, int64_t heads, int64_t head_dim, RopePairing pairing, const float* cosine, const float* sine) {
  HWY_DYNAMIC_DISPATCH(RopeHeads)(v, heads, head_dim, pairing, cosine, sine);
}
int32_t ArgMaxRow(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(ArgMaxOne)(x, count); }
void WidenRow(const void* source, quant::DType dtype, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(WidenOne)(source, dtype, count, out);
}

bool TargetAvailable() { return (hwy::SupportedTargets() & (HWY_TARGETS)) != 0; }
const char* TargetName() {
  const int64_t usable = hwy::SupportedTargets() & (HWY_TARGETS);
  return hwy::TargetName(usable & -usable);
}
}  // namespace voxrt::backend::cpu
#endif
