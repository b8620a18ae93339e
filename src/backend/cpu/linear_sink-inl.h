// What happens to a finished tile of a linear layer: stored (bias, GELU, residual addition), multiplied with its gate,
// or searched for the largest value. A tile is one vector, lane r * NW + w = output of activation row r and weight row
// w.
#if defined(VOXRT_BACKEND_CPU_LINEAR_SINK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOXRT_BACKEND_CPU_LINEAR_SINK_INL_H_
#undef VOXRT_BACKEND_CPU_LINEAR_SINK_INL_H_
#else
#define VOXRT_BACKEND_CPU_LINEAR_SINK_INL_H_
#endif

#include <limits>

#include "backend/cpu/math-inl.h"
#include "backend/cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

// bias[0..NW) in every row of the tile; lanes of invalid weight rows are 0.
template <int NW>
HWY_INLINE VF TileBias(const float* bias, int valid_w) {
  if (valid_w == NW) return LoadRepeated<NW>(bias);
  HWY_ALIGN float buffer[kLanes];
  for (int i = 0; i < static_cast<int>(kLanes); ++i) buffer[i] = i % NW < valid_w ? bias[i % NW] : 0.0f;
  return hn::Load(DF(), buffer);
}

// Stores or adds the valid part of a tile to out (its first row and column).
template <int NW, int NR>
HWY_INLINE void StoreTile(VF v, float* HWY_RESTRICT out, int64_t stride, int valid_w, int valid_r, bool add) {
  const DF d;
  HWY_ALIGN float buffer[kLanes];
  hn::Store(v, d, buffer);
  if (valid_w == NW) {
    const hn::CappedTag<float, NW> dn;
#pragma GCC unroll 4
    for (int r = 0; r < NR; ++r) {
      if (r >= valid_r) break;
      auto row = hn::Load(dn, buffer + r * NW);
      if (add) row = hn::Add(hn::LoadU(dn, out + r * stride), row);
      hn::StoreU(row, dn, out + r * stride);
    }
    return;
  }
  for (int r = 0; r < valid_r; ++r) {
    for (int n = 0; n < valid_w; ++n) {
      float& to = out[r * stride + n];
      to = add ? to + buffer[r * NW + n] : buffer[r * NW + n];
    }
  }
}

class StoreSink {
 public:
  static constexpr bool kPair = false;
  explicit StoreSink(const LinearJob& job) : job_(job) {}

  template <int NW, int NR>
  HWY_INLINE void Emit(int64_t n, int64_t r, int valid_w, int valid_r, VF v) {
    if (job_.bias != nullptr) v = hn::Add(v, TileBias<NW>(job_.bias + n, valid_w));
    if (job_.epilogue == Epilogue::kGelu) v = Gelu(v);
    StoreTile<NW, NR>(v, job_.out + r * job_.out_stride + n, job_.out_stride, valid_w, valid_r,
                      job_.epilogue == Epilogue::kAddTo);
  }

 private:
  const LinearJob& job_;
};

class PairSink {
 public:
  static constexpr bool kPair = true;
  explicit PairSink(const LinearJob& job) : job_(job) {}

  template <int NW, int NR>
  HWY_INLINE void Emit(int64_t n, int64_t r, int valid_w, int valid_r, VF gate, VF up) {
    if (job_.bias != nullptr) gate = hn::Add(gate, TileBias<NW>(job_.bias + n, valid_w));
    if (job_.pair_bias != nullptr) up = hn::Add(up, TileBias<NW>(job_.pair_bias + n, valid_w));
    StoreTile<NW, NR>(hn::Mul(Silu(gate), up), job_.out + r * job_.out_stride + n, job_.out_stride, valid_w, valid_r,
                      false);
  }

 private:
  const LinearJob& job_;
};

// Keeps per activation row the largest value so far and its first index, whatever the order of the tiles. A tile that
// does not reach the largest value, the usual case, costs one comparison.
class ArgMaxSink {
 public:
  static constexpr bool kPair = false;
  ArgMaxSink(const LinearJob& job, Scratch& scratch)
      : job_(job), lanes_(scratch.Get<float>(job.rows * static_cast<int64_t>(kLanes))) {
    for (int64_t i = 0; i < job.rows * static_cast<int64_t>(kLanes); ++i)
      lanes_[i] = -std::numeric_limits<float>::infinity();
  }

  template <int NW, int NR>
  HWY_INLINE void Emit(int64_t n, int64_t r, int valid_w, int valid_r, VF v) {
    const DF d;
    if (job_.bias != nullptr) v = hn::Add(v, TileBias<NW>(job_.bias + n, valid_w));
    if (job_.out != nullptr) {
      StoreTile<NW, NR>(v, job_.out + r * job_.out_stride + n, job_.out_stride, valid_w, valid_r, false);
    }
    float* best = lanes_ + r * static_cast<int64_t>(kLanes);  // of the tile that begins at row r
    if (hn::AllFalse(d, hn::Ge(v, hn::Load(d, best)))) return;
    Update<NW>(n, r, valid_w, valid_r, v, best);
  }

 private:
  template <int NW>
  HWY_NOINLINE void Update(int64_t n, int64_t r, int valid_w, int valid_r, VF v, float* best) {
    HWY_ALIGN float buffer[kLanes];
    hn::Store(v, DF(), buffer);
    for (int i = 0; i < valid_r; ++i) {
      float& value = job_.best_value[r + i];
      for (int w = 0; w < valid_w; ++w) {
        const float candidate = buffer[i * NW + w];
        const int32_t index = job_.index_base + static_cast<int32_t>(n) + w;
        const bool tied = candidate == value && value > -std::numeric_limits<float>::infinity();
        if (!(candidate > value) && !(tied && index < job_.best_index[r + i])) continue;
        value = candidate;
        job_.best_index[r + i] = index;
      }
      for (int w = 0; w < NW; ++w) best[i * NW + w] = value;
    }
  }

  const LinearJob& job_;
  float* lanes_;  // [rows, lanes]
};

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
