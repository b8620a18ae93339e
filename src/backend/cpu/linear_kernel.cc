// Linear layers over stored fp32, bf16 and fp16 weights: y = x W^T for any number of rows with one arithmetic
// (kernels.h).
//
// Tile: NW weight rows times NR activation rows, NW * NR = lanes, one vector accumulator per output. When a tile is
// done its accumulators are transposed and added at once, which yields one vector of outputs [NR][NW]; bias, activation
// or residual addition work on that vector.
//   few rows   weights are widened in registers while they stream from memory
//   many rows  a block of weight rows is widened into cache once and meets all activation rows there
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include "backend/cpu/linear_sink-inl.h"
#include "backend/cpu/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kL = static_cast<int64_t>(kLanes);
// Most accumulators in flight: half of the registers where there are 16 of them, else one full tile.
constexpr int kMaxAccumulators = kLanes == 16 ? 16 : 8;

// acc[r * NW + w] += w[w] . x[r] over k (a multiple of the lanes).
template <int NW, int NR, typename T>
HWY_INLINE void Dot(const T* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT x, int64_t k,
                    VF* HWY_RESTRICT acc) {
  const DF d;
  VF sum[NW * NR];
#pragma GCC unroll 16
  for (int i = 0; i < NW * NR; ++i) sum[i] = hn::Zero(d);
  for (int64_t i = 0; i < k; i += kL) {
    VF wide[NW];
#pragma GCC unroll 16
    for (int n = 0; n < NW; ++n) wide[n] = LoadWide(w[n] + i);
#pragma GCC unroll 16
    for (int r = 0; r < NR; ++r) {
      const VF in = hn::LoadU(d, x[r] + i);
#pragma GCC unroll 16
      for (int n = 0; n < NW; ++n) sum[r * NW + n] = hn::MulAdd(wide[n], in, sum[r * NW + n]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < NW * NR; ++i) acc[i] = sum[i];
}

// Outputs of weight rows n.. and activation rows r.. as one vector; rows past the valid ones repeat the last.
template <int NW, int NR, typename T>
HWY_INLINE VF TileSums(const T* weight, int64_t cols, int valid_w, const float* x, int64_t x_stride, int valid_r) {
  constexpr int kStep = NW * NR > kMaxAccumulators ? kMaxAccumulators / NR : NW;
  const T* w[NW];
  const float* in[NR];
  for (int n = 0; n < NW; ++n) w[n] = weight + static_cast<int64_t>(n < valid_w ? n : valid_w - 1) * cols;
  for (int r = 0; r < NR; ++r) in[r] = x + static_cast<int64_t>(r < valid_r ? r : valid_r - 1) * x_stride;
  VF acc[NW * NR];
  if constexpr (kStep == NW) {
    Dot<NW, NR>(w, in, cols, acc);
  } else {
    static_assert(NR == 1);
    for (int n = 0; n < NW; n += kStep) Dot<kStep, NR>(w + n, in, cols, acc + n);
  }
  return ReduceLanes(acc);
}

// All NW-row tiles of weight rows [n, n + count) against activation rows [r, r + valid_r), valid_r <= NR.
template <int NW, int NR, typename T, class Sink>
HWY_INLINE void TileRow(const T* weight, const T* pair, int64_t cols, int64_t n, int64_t count, const float* x,
                        int64_t x_stride, int64_t r, int valid_r, Sink& sink) {
  for (int64_t at = 0; at < count; at += NW) {
    const int valid_w = static_cast<int>(count - at < NW ? count - at : NW);
    const VF sums = TileSums<NW, NR>(weight + at * cols, cols, valid_w, x, x_stride, valid_r);
    if constexpr (Sink::kPair) {
      const VF pair_sums = TileSums<NW, NR>(pair + at * cols, cols, valid_w, x, x_stride, valid_r);
      sink.template Emit<NW, NR>(n + at, r, valid_w, valid_r, sums, pair_sums);
    } else {
      sink.template Emit<NW, NR>(n + at, r, valid_w, valid_r, sums);
    }
  }
}

// Weight rows [n, n + count), whose storage begins at `weight`, against all activation rows.
template <typename T, class Sink>
HWY_INLINE void AllRows(const T* weight, const T* pair, int64_t cols, int64_t n, int64_t count, const float* x,
                        int64_t x_stride, int64_t rows, Sink& sink) {
  int64_t r = 0;
  if constexpr (kLanes == 16) {
    for (; rows - r >= 3; r += 4) {
      const int valid = static_cast<int>(rows - r < 4 ? rows - r : 4);
      TileRow<4, 4>(weight, pair, cols, n, count, x + r * x_stride, x_stride, r, valid, sink);
    }
  }
  constexpr int kHalf = static_cast<int>(kLanes / 2);
  for (; rows - r >= 2; r += 2) TileRow<kHalf, 2>(weight, pair, cols, n, count, x + r * x_stride, x_stride, r, 2, sink);
  if (r < rows)
    TileRow<static_cast<int>(kLanes), 1>(weight, pair, cols, n, count, x + r * x_stride, x_stride, r, 1, sink);
}

// Widens `count` rows into [count, padded], zero behind cols.
template <typename T>
void WidenBlock(const T* source, int64_t cols, int64_t count, int64_t padded, float* out) {
  const DF d;
  for (int64_t n = 0; n < count; ++n, source += cols, out += padded) {
    int64_t k = 0;
    for (; k + kL <= cols; k += kL) hn::Store(LoadWide(source + k), d, out + k);
    if (k == cols) continue;
    WidenRow(source + k,
             std::is_same_v<T, float>  ? quant::DType::kF32
             : std::is_same_v<T, Bf16> ? quant::DType::kBF16
                                       : quant::DType::kF16,
             cols - k, out + k);
    for (k = cols; k < padded; ++k) out[k] = 0.0f;
  }
}

// Activation rows that a weight block must meet before widening it separately pays.
constexpr int64_t kManyRows = 9;
constexpr int64_t kBlockFloats = 65536;  // 256 KiB of widened weights

template <typename T, class Sink>
void RunBlocked(const LinearJob& job, WorkerScratch& scratch, Sink& sink) {
  const int64_t padded = (job.cols + kL - 1) / kL * kL;
  const float* x = job.x;
  int64_t x_stride = job.x_stride;
  if (padded != job.cols) {
    float* copy = scratch.x.Get<float>(job.rows * padded);
    for (int64_t r = 0; r < job.rows; ++r) WidenBlock(job.x + r * job.x_stride, job.cols, 1, padded, copy + r * padded);
    x = copy;
    x_stride = padded;
  }
  constexpr int64_t kMatrices = Sink::kPair ? 2 : 1;
  int64_t block = kBlockFloats / (padded * kMatrices) / kL * kL;
  block = std::min(std::max(block, kL), job.n_end - job.n_begin);
  float* wide = scratch.weights.Get<float>(block * padded * kMatrices);
  float* wide_pair = Sink::kPair ? wide + block * padded : nullptr;
  for (int64_t n = job.n_begin; n < job.n_end; n += block) {
    const int64_t count = std::min(block, job.n_end - n);
    WidenBlock(static_cast<const T*>(job.weight) + n * job.cols, job.cols, count, padded, wide);
    if constexpr (Sink::kPair)
      WidenBlock(static_cast<const T*>(job.pair) + n * job.cols, job.cols, count, padded, wide_pair);
    AllRows(wide, wide_pair, padded, n, count, x, x_stride, job.rows, sink);
  }
}

template <typename T, class Sink>
void RunTyped(const LinearJob& job, WorkerScratch& scratch, Sink sink) {
  if (job.rows >= kManyRows || job.cols % kL != 0) return RunBlocked<T>(job, scratch, sink);
  // A few weight rows at a time meet all activation rows, so that they come from memory once.
  for (int64_t n = job.n_begin; n < job.n_end; n += kL) {
    const int64_t count = std::min(kL, job.n_end - n);
    const T* pair = Sink::kPair ? static_cast<const T*>(job.pair) + n * job.cols : nullptr;
    AllRows(static_cast<const T*>(job.weight) + n * job.cols, pair, job.cols, n, count, job.x, job.x_stride, job.rows,
            sink);
  }
}

template <typename T>
void RunStored(const LinearJob& job, WorkerScratch& scratch) {
  if (job.pair != nullptr) return RunTyped<T>(job, scratch, PairSink(job));
  if (job.best_value != nullptr) return RunTyped<T>(job, scratch, ArgMaxSink(job, scratch.lanes));
  RunTyped<T>(job, scratch, StoreSink(job));
}

void Linear(const LinearJob& job, WorkerScratch& scratch) {
  if (job.rows <= 0 || job.n_begin >= job.n_end) return;
  switch (job.dtype) {
    case quant::DType::kF32:
      return RunStored<float>(job, scratch);
    case quant::DType::kF16:
      return RunStored<F16>(job, scratch);
    default:
      return RunStored<Bf16>(job, scratch);
  }
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(Linear);
void RunLinear(const LinearJob& job, WorkerScratch& scratch) { HWY_DYNAMIC_DISPATCH(Linear)(job, scratch); }
}  // namespace voxrt::backend::cpu
#endif
