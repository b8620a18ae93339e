// The tiles of a linear layer. A tile is NW weight rows times NR activation rows, NW * NR = lanes, one vector
// accumulator per output; its outputs come as one vector [NR][NW] that a sink (linear_sink-inl.h) takes. What a weight
// row is made of is the operand's business: it computes the tile's dot products.
//
//   operand.Sums<NW, NR>(row, valid_w, r, valid_r)   rows of the operand, activation rows; rows past the valid ones
//   repeat
//                                                    the last valid one and their outputs are dropped
#if defined(VOXRT_BACKEND_CPU_LINEAR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOXRT_BACKEND_CPU_LINEAR_TILE_INL_H_
#undef VOXRT_BACKEND_CPU_LINEAR_TILE_INL_H_
#else
#define VOXRT_BACKEND_CPU_LINEAR_TILE_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/linear_sink-inl.h"
#include "backend/cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kL = static_cast<int64_t>(kLanes);
// Weight rows that one pass over K takes: 16 accumulators where there are 32 registers, else 8.
constexpr int kMaxAccumulators = kLanes == 16 ? 16 : 8;

// All NW-row tiles of operand rows [row, row + count), the outputs n.., against activation rows [r, r + valid_r).
template <int NW, int NR, class Operand, class Sink>
HWY_INLINE void TileRow(const Operand& operand, const Operand& pair, int64_t row, int64_t n, int64_t count, int64_t r,
                        int valid_r, Sink& sink) {
  for (int64_t at = 0; at < count; at += NW) {
    const int valid_w = static_cast<int>(std::min<int64_t>(count - at, NW));
    const VF sums = operand.template Sums<NW, NR>(row + at, valid_w, r, valid_r);
    if constexpr (Sink::kPair) {
      const VF pair_sums = pair.template Sums<NW, NR>(row + at, valid_w, r, valid_r);
      sink.template Emit<NW, NR>(n + at, r, valid_w, valid_r, sums, pair_sums);
    } else {
      sink.template Emit<NW, NR>(n + at, r, valid_w, valid_r, sums);
    }
  }
}

// Operand rows [row, row + count), the outputs n.., against all activation rows.
template <class Operand, class Sink>
HWY_INLINE void AllRows(const Operand& operand, const Operand& pair, int64_t row, int64_t n, int64_t count,
                        int64_t rows, Sink& sink) {
  int64_t r = 0;
  if constexpr (kLanes == 16) {
    for (; rows - r >= 3; r += 4) {
      TileRow<4, 4>(operand, pair, row, n, count, r, static_cast<int>(std::min<int64_t>(rows - r, 4)), sink);
    }
  }
  for (; rows - r >= 2; r += 2) TileRow<static_cast<int>(kLanes / 2), 2>(operand, pair, row, n, count, r, 2, sink);
  if (r < rows) TileRow<static_cast<int>(kLanes), 1>(operand, pair, row, n, count, r, 1, sink);
}

// Outputs [n_begin, n_end) of an operand that reads stored rows in place: `block` rows at a time meet all activation
// rows.
template <class Operand, class Sink>
HWY_INLINE void RunInPlace(const Operand& operand, const Operand& pair, const LinearJob& job, int64_t block,
                           Sink& sink) {
  for (int64_t n = job.n_begin; n < job.n_end; n += block) {
    AllRows(operand, pair, n, n, std::min(block, job.n_end - n), job.rows, sink);
  }
}

// Dot products of fp32, bf16 or fp16 rows with fp32 rows; cols is a multiple of the lanes.
template <typename T>
struct FloatOperand {
  const T* weight;
  int64_t cols;
  const float* x;
  int64_t x_stride;

  // acc[r * NW + w] = w[w] . x[r].
  template <int NW, int NR>
  HWY_INLINE void Dot(const T* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT in, VF* HWY_RESTRICT acc) const {
    const DF d;
    VF sum[NW * NR];
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(d);
    for (int64_t i = 0; i < cols; i += kL) {
      VF wide[NW];
#pragma GCC unroll 16
      for (int n = 0; n < NW; ++n) wide[n] = LoadWide(w[n] + i);
#pragma GCC unroll 16
      for (int r = 0; r < NR; ++r) {
        const VF v = hn::LoadU(d, in[r] + i);
#pragma GCC unroll 16
        for (int n = 0; n < NW; ++n) sum[r * NW + n] = hn::MulAdd(wide[n], v, sum[r * NW + n]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < NW * NR; ++i) acc[i] = sum[i];
  }

  template <int NW, int NR>
  HWY_NOINLINE VF Sums(int64_t row, int valid_w, int64_t r, int valid_r) const {
    constexpr int kStep = NR == 1 ? std::min(NW, kMaxAccumulators / 2) : NW;
    const T* w[NW];
    const float* in[NR];
    for (int n = 0; n < NW; ++n) w[n] = weight + (row + std::min(n, valid_w - 1)) * cols;
    for (int i = 0; i < NR; ++i) in[i] = x + (r + std::min(i, valid_r - 1)) * x_stride;
    VF acc[NW * NR];
    for (int n = 0; n < NW; n += kStep) Dot<kStep, NR>(w + n, in, acc + n);
    return ReduceLanes(acc);
  }
};

// Activation rows that a block of weight rows must meet before widening it into cache pays.
constexpr int64_t kManyRows = 9;
constexpr int64_t kBlockFloats = 65536;  // 256 KiB of widened weights

// Weight rows widened into cache, a block at a time, for many activation rows. `widen(matrix, row, padded, out)` writes
// one row (matrix 1: the pair's), zero behind cols up to `padded`.
template <class Widen, class Sink>
HWY_INLINE void RunWidened(const LinearJob& job, WorkerScratch& scratch, const Widen& widen, Sink& sink) {
  const int64_t padded = (job.cols + kL - 1) / kL * kL;
  const float* x = job.x;
  int64_t x_stride = job.x_stride;
  if (padded != job.cols) {
    float* copy = scratch.x.Get<float>(job.rows * padded);
    for (int64_t r = 0; r < job.rows; ++r) {
      std::copy_n(job.x + r * job.x_stride, job.cols, copy + r * padded);
      std::fill(copy + r * padded + job.cols, copy + (r + 1) * padded, 0.0f);
    }
    x = copy;
    x_stride = padded;
  }
  constexpr int64_t kMatrices = Sink::kPair ? 2 : 1;
  int64_t block = kBlockFloats / (padded * kMatrices) / kL * kL;
  block = std::min(std::max(block, kL), job.n_end - job.n_begin);
  float* wide = scratch.weights.Get<float>(block * padded * kMatrices);
  float* wide_pair = wide + (kMatrices - 1) * block * padded;
  const FloatOperand<float> operand{wide, padded, x, x_stride};
  const FloatOperand<float> pair{wide_pair, padded, x, x_stride};
  for (int64_t n = job.n_begin; n < job.n_end; n += block) {
    const int64_t count = std::min(block, job.n_end - n);
    for (int64_t i = 0; i < count; ++i) {
      widen(0, n + i, padded, wide + i * padded);
      if constexpr (Sink::kPair) widen(1, n + i, padded, wide_pair + i * padded);
    }
    AllRows(operand, pair, 0, n, count, job.rows, sink);
  }
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
