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
#include <array>

#include "backend/cpu/linear_sink-inl.h"
#include "backend/cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kL = static_cast<int64_t>(kLanes);
constexpr int kN = static_cast<int>(kLanes);  // weight rows of a tile with one activation row
// Weight rows that one pass over K takes: 16 accumulators where there are 32 registers, else 8.
constexpr int kMaxAccumulators = kLanes == 16 ? 16 : 8;

// All NW-row tiles of operand rows [row, row + count), the outputs n.., against activation rows [r, r + valid_r).
template <int NW, int NR, class Operand, class Sink>
HWY_INLINE void TileRow(const Operand& operand, const Operand& pair, int64_t row, int64_t n, int64_t count, int64_t r,
                        int valid_r, Sink& sink) {
  const auto inputs = operand.template Inputs<NW, NR>(r, valid_r);
  for (int64_t at = 0; at < count; at += NW) {
    const int valid_w = static_cast<int>(std::min<int64_t>(count - at, NW));
    const VF sums = operand.template Sums<NW, NR>(row + at, valid_w, inputs);
    if constexpr (Sink::kPair) {
      const VF pair_sums = pair.template Sums<NW, NR>(row + at, valid_w, inputs);
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

// Outputs [n_begin, n_end) for a single activation row, which is limited by how fast weights come from memory: two
// streams of them, far apart, come in faster than one or than neighbouring rows. The streams are gate and up, or the
// two halves of the outputs.
template <class Operand, class Sink>
HWY_INLINE void RunOneRow(const Operand& operand, const Operand& pair, const LinearJob& job, Sink& sink) {
  const auto in = operand.template Inputs<kN, 1>(0, 1);
  const auto valid = [&](int64_t n) { return static_cast<int>(std::min<int64_t>(job.n_end - n, kN)); };
  if constexpr (Sink::kPair) {
    for (int64_t n = job.n_begin; n < job.n_end; n += kN) {
      const auto [gate, up] = operand.TwoSums(n, valid(n), pair, n, valid(n), in);
      sink.template Emit<kN, 1>(n, 0, valid(n), 1, gate, up);
    }
  } else {
    const int64_t half = (job.n_end - job.n_begin + 2 * kN - 1) / (2 * kN) * kN;
    for (int64_t n = job.n_begin; n < job.n_begin + half; n += kN) {
      const int64_t m = n + half;
      if (m >= job.n_end) {
        sink.template Emit<kN, 1>(n, 0, valid(n), 1, operand.template Sums<kN, 1>(n, valid(n), in));
        continue;
      }
      const auto [first, second] = operand.TwoSums(n, valid(n), operand, m, valid(m), in);
      sink.template Emit<kN, 1>(n, 0, valid(n), 1, first);
      sink.template Emit<kN, 1>(m, 0, valid(m), 1, second);
    }
  }
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

// Bytes that a stream of `step` rows of weights is fetched ahead of its use: the next rows, and no less than what
// memory latency takes. Rows follow each other, so the distance is right for every row; past the end of a weight it is
// a no-op.
HWY_INLINE int64_t PrefetchDistance(int64_t step, int64_t row_bytes) {
  return std::max<int64_t>(step * row_bytes, 8192);
}
// The same for a single row at a time.
constexpr int64_t kStreamAhead = 4096;
HWY_INLINE void PrefetchWeights(const void* p, int64_t distance) {
  __builtin_prefetch(static_cast<const std::byte*>(p) + distance, 0, 3);
}
// For each of two streams: into the first-level cache.
HWY_INLINE void PrefetchStream(const void* p) {
  __builtin_prefetch(static_cast<const std::byte*>(p) + kStreamAhead, 0, 3);
}

// Dot products of fp32, bf16 or fp16 rows with fp32 rows; cols is a multiple of the lanes.
template <typename T>
struct FloatOperand {
  const T* weight;
  int64_t cols;
  int64_t stride;  // elements from one weight row to the next
  const float* x;
  int64_t x_stride;

  // sum[r * NW + w] += w[w] . x[r] over columns [begin, end).
  template <int NW, int NR>
  HWY_INLINE void Dot(const T* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT in, int64_t begin, int64_t end,
                      VF* HWY_RESTRICT sum) const {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));  // elements of a cache line
    constexpr int64_t kUnroll = std::max<int64_t>(kLine / kL, 1);
    // Widened weights (fp32) mostly lie in cache.
    const int64_t ahead = PrefetchDistance(NW, stride * static_cast<int64_t>(sizeof(T)));
    int64_t i = begin;
    for (; i + kUnroll * kL <= end; i += kUnroll * kL) {
      if constexpr (sizeof(T) == 2) {
#pragma GCC unroll 16
        for (int n = 0; n < NW; ++n) PrefetchWeights(w[n] + i, ahead);
      }
#pragma GCC unroll 8
      for (int64_t u = 0; u < kUnroll; ++u) Step<NW, NR>(w, in, i + u * kL, sum);
    }
    for (; i < end; i += kL) Step<NW, NR>(w, in, i, sum);
  }

  template <int NW, int NR>
  HWY_INLINE void Step(const T* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT in, int64_t i,
                       VF* HWY_RESTRICT sum) const {
    VF wide[NW];
#pragma GCC unroll 16
    for (int n = 0; n < NW; ++n) wide[n] = LoadWide(w[n] + i);
#pragma GCC unroll 16
    for (int r = 0; r < NR; ++r) {
      const VF v = hn::LoadU(DF(), in[r] + i);
#pragma GCC unroll 16
      for (int n = 0; n < NW; ++n) sum[r * NW + n] = hn::MulAdd(wide[n], v, sum[r * NW + n]);
    }
  }

  template <int NW, int NR>
  HWY_INLINE std::array<const float*, NR> Inputs(int64_t r, int valid_r) const {
    std::array<const float*, NR> in;
    for (int i = 0; i < NR; ++i) in[static_cast<size_t>(i)] = x + (r + std::min(i, valid_r - 1)) * x_stride;
    return in;
  }
  template <int NW, int NR>
  HWY_NOINLINE VF Sums(int64_t row, int valid_w, const std::array<const float*, NR>& in) const {
    constexpr int kStep = NR == 1 ? std::min(NW, kMaxAccumulators / 2) : NW;
    const T* w[NW];
    RowPointers<NW>(weight + row * stride, stride, valid_w, w);
    VF acc[NW * NR];
    for (int n = 0; n < NW; n += kStep) {
      VF sum[kStep * NR];
#pragma GCC unroll 16
      for (int i = 0; i < kStep * NR; ++i) sum[i] = hn::Zero(DF());
      Dot<kStep, NR>(w + n, in.data(), 0, cols, sum);
#pragma GCC unroll 16
      for (int i = 0; i < kStep * NR; ++i) acc[n + i] = sum[i];
    }
    return ReduceLanes(acc);
  }

  // A 4 x 4 tile over columns [begin, end) with accumulators kept in `saved` [16 vectors] before and behind. Returns
  // the sums when the columns are done.
  HWY_NOINLINE VF PartialSums(int64_t row, int valid_w, const std::array<const float*, 4>& in, int64_t begin,
                              int64_t end, float* HWY_RESTRICT saved) const {
    const DF d;
    const T* w[4];
    RowPointers<4>(weight + row * stride, stride, valid_w, w);
    VF acc[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = begin == 0 ? hn::Zero(d) : hn::Load(d, saved + i * kL);
    Dot<4, 4>(w, in.data(), begin, end, acc);
    if (end == cols) return ReduceLanes(acc);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) hn::Store(acc[i], d, saved + i * kL);
    return acc[0];
  }
};

// Long rows: columns in chunks, so that the chunk of four activation rows stays in the first-level cache while it meets
// `count` weight rows. Accumulators wait in memory between chunks, which changes no bit.
constexpr int64_t kChunk = 1024;
constexpr int64_t kChunkRows = 16;  // activation rows whose accumulators wait at once

template <typename T, class Sink>
HWY_INLINE void AllRowsChunked(const FloatOperand<T>& operand, const FloatOperand<T>& pair, int64_t row, int64_t n,
                               int64_t count, int64_t rows, Scratch& scratch, Sink& sink) {
  constexpr int64_t kMatrices = Sink::kPair ? 2 : 1;
  const int64_t tiles = (count + 3) / 4;
  float* saved = scratch.Get<float>(kChunkRows / 4 * tiles * kMatrices * 16 * kL);
  const int64_t chunks = (operand.cols + kChunk - 1) / kChunk;
  const int64_t chunk = (operand.cols / kL + chunks - 1) / chunks * kL;
  for (int64_t first = 0; first < rows; first += kChunkRows) {
    const int64_t last = std::min(rows, first + kChunkRows);
    for (int64_t begin = 0; begin < operand.cols; begin += chunk) {
      const int64_t end = std::min(operand.cols, begin + chunk);
      float* at = saved;
      for (int64_t r = first; r < last; r += 4) {
        const int valid_r = static_cast<int>(std::min<int64_t>(last - r, 4));
        const auto in = operand.template Inputs<4, 4>(r, valid_r);
        for (int64_t w = 0; w < count; w += 4, at += kMatrices * 16 * kL) {
          const int valid_w = static_cast<int>(std::min<int64_t>(count - w, 4));
          const VF sums = operand.PartialSums(row + w, valid_w, in, begin, end, at);
          if constexpr (Sink::kPair) {
            const VF pair_sums = pair.PartialSums(row + w, valid_w, in, begin, end, at + 16 * kL);
            if (end == operand.cols) sink.template Emit<4, 4>(n + w, r, valid_w, valid_r, sums, pair_sums);
          } else {
            if (end == operand.cols) sink.template Emit<4, 4>(n + w, r, valid_w, valid_r, sums);
          }
        }
      }
    }
  }
}

template <typename T, class Sink>
HWY_INLINE void AllFloatRows(const FloatOperand<T>& operand, const FloatOperand<T>& pair, int64_t row, int64_t n,
                             int64_t count, int64_t rows, Scratch& scratch, Sink& sink) {
  if constexpr (kLanes == 16) {
    if (operand.cols > kChunk + kChunk / 2 && rows >= 3) {
      return AllRowsChunked(operand, pair, row, n, count, rows, scratch, sink);
    }
  }
  AllRows(operand, pair, row, n, count, rows, sink);
}

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
  const int64_t stride = padded + 16;  // rows a power of two apart would fall on the same cache sets
  int64_t block = kBlockFloats / (padded * kMatrices) / kL * kL;
  block = std::min(std::max(block, kL), job.n_end - job.n_begin);
  float* wide = scratch.weights.Get<float>(block * stride * kMatrices);
  float* wide_pair = wide + (kMatrices - 1) * block * stride;
  const FloatOperand<float> operand{wide, padded, stride, x, x_stride};
  const FloatOperand<float> pair{wide_pair, padded, stride, x, x_stride};
  for (int64_t n = job.n_begin; n < job.n_end; n += block) {
    const int64_t count = std::min(block, job.n_end - n);
    for (int64_t i = 0; i < count; ++i) {
      widen(0, n + i, padded, wide + i * stride);
      if constexpr (Sink::kPair) widen(1, n + i, padded, wide_pair + i * stride);
    }
    AllFloatRows(operand, pair, 0, n, count, job.rows, scratch.partial, sink);
  }
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
