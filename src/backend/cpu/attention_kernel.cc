// Causal sliding-window attention over ring K/V, one (session, K/V head) at a time.
//
// Keys come in blocks of kKvBlock aligned to the absolute index, so the online softmax takes the same steps for a row
// whatever call it is in. Within a block the scores are q . k summed along head_dim in rising order (keys lie
// transposed: one lane per key), and p V is summed over keys in rising order (one lane per column). Several queries
// share each load of K and V: the rows of a call, and the query heads of one K/V head. A key outside a query's window
// has p = 0 exactly.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/kv_int8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include "backend/cpu/math-inl.h"
#include "backend/cpu/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

constexpr int64_t kL = static_cast<int64_t>(kLanes);
constexpr int kVectors = 4;                                        // vectors of keys or columns in registers per query
constexpr int kMaxQueries = kLanes == 16 || HWY_ARCH_ARM ? 4 : 2;  // queries that share a load: 16 or 8 accumulators
constexpr int64_t kBlockVectors = kKvBlock / kL;

// Up to kMaxQueries queries that go through the blocks together.
struct Tile {
  int queries = 0;
  const float* q[kMaxQueries];
  float* out[kMaxQueries];
  int64_t low[kMaxQueries];   // first visible index
  int64_t high[kMaxQueries];  // last visible index
  float top[kMaxQueries];     // largest score so far
  float* sum;                 // [queries, lanes] of exp(score - top)
  float* score;               // [queries, kKvBlock]
  float* value;               // [queries, padded head_dim]
};

// score[t][j] = q[t] . k[j] for all keys of a block.
template <int kQ, typename T>
HWY_INLINE void Scores(const Tile& tile, const T* HWY_RESTRICT keys, int64_t head_dim) {
  const DF d;
  for (int64_t v = 0; v < kBlockVectors; v += kVectors) {
    VF sum[kQ * kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kQ * kVectors; ++i) sum[i] = hn::Zero(d);
    for (int64_t k = 0; k < head_dim; ++k) {
      const T* row = keys + k * kKvBlock + v * kL;
      VF key[kVectors];
#pragma GCC unroll 4
      for (int u = 0; u < kVectors; ++u) key[u] = LoadWide(row + u * kL);
#pragma GCC unroll 4
      for (int t = 0; t < kQ; ++t) {
        const VF q = hn::Set(d, tile.q[t][k]);
#pragma GCC unroll 4
        for (int u = 0; u < kVectors; ++u) sum[t * kVectors + u] = hn::MulAdd(key[u], q, sum[t * kVectors + u]);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kQ; ++t) {
#pragma GCC unroll 4
      for (int u = 0; u < kVectors; ++u) {
        hn::Store(sum[t * kVectors + u], d, tile.score + t * kKvBlock + (v + u) * kL);
      }
    }
  }
}

// Scores of one query to probabilities of the block (times the values' scales for int8); rescales what was summed
// before.
template <bool kScaled>
HWY_INLINE void Softmax(Tile& tile, int t, int64_t block_begin, float scale, const float* scales, int64_t padded_dim) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  float* score = tile.score + t * kKvBlock;
  const bool masked = tile.low[t] > block_begin || tile.high[t] < block_begin + kKvBlock - 1;
  const auto low = hn::Set(di, static_cast<int32_t>(std::clamp<int64_t>(tile.low[t] - block_begin, -1, kKvBlock)));
  const auto high = hn::Set(di, static_cast<int32_t>(std::clamp<int64_t>(tile.high[t] - block_begin, -1, kKvBlock)));
  const VF factor = hn::Set(d, scale);
  const VF minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  VF largest = minus_infinity;
  for (int64_t v = 0; v < kBlockVectors; ++v) {
    VF s = hn::Mul(hn::Load(d, score + v * kL), factor);
    if constexpr (kScaled) s = hn::Mul(s, hn::LoadU(d, scales + v * kL));
    if (masked) {
      const auto j = hn::Iota(di, static_cast<int32_t>(v * kL));
      const auto hidden = hn::Or(hn::Lt(j, low), hn::Gt(j, high));
      s = hn::IfThenElse(hn::RebindMask(d, hidden), minus_infinity, s);
    }
    hn::Store(s, d, score + v * kL);
    largest = hn::Max(largest, s);
  }
  const float top = std::max(tile.top[t], hn::GetLane(hn::MaxOfLanes(d, largest)));
  const VF correction = Exp(hn::Set(d, tile.top[t] - top));
  const VF offset = hn::Set(d, top);
  VF sum = hn::Mul(hn::Load(d, tile.sum + t * kL), correction);
  for (int64_t v = 0; v < kBlockVectors; ++v) {
    VF p = Exp(hn::Sub(hn::Load(d, score + v * kL), offset));
    sum = hn::Add(sum, p);
    if constexpr (kScaled) p = hn::Mul(p, hn::LoadU(d, scales + kKvBlock + v * kL));
    hn::Store(p, d, score + v * kL);
  }
  hn::Store(sum, d, tile.sum + t * kL);
  if (top == tile.top[t]) return;
  tile.top[t] = top;
  float* value = tile.value + t * padded_dim;
  for (int64_t c = 0; c < padded_dim; c += kL) hn::Store(hn::Mul(hn::Load(d, value + c), correction), d, value + c);
}

// value[t] += p[t][j] v[j] over keys [begin, end) of the block, columns [column, column + kV vectors).
template <int kQ, int kV, typename T>
HWY_INLINE void Values(const Tile& tile, const T* HWY_RESTRICT values, int64_t padded_dim, int64_t column,
                       int64_t begin, int64_t end) {
  const DF d;
  VF sum[kQ * kV];
#pragma GCC unroll 4
  for (int t = 0; t < kQ; ++t) {
#pragma GCC unroll 4
    for (int u = 0; u < kV; ++u) sum[t * kV + u] = hn::Load(d, tile.value + t * padded_dim + column + u * kL);
  }
  for (int64_t j = begin; j < end; ++j) {
    const T* row = values + j * padded_dim + column;
    VF wide[kV];
#pragma GCC unroll 4
    for (int u = 0; u < kV; ++u) wide[u] = LoadWide(row + u * kL);
#pragma GCC unroll 4
    for (int t = 0; t < kQ; ++t) {
      const VF p = hn::Set(d, tile.score[t * kKvBlock + j]);
#pragma GCC unroll 4
      for (int u = 0; u < kV; ++u) sum[t * kV + u] = hn::MulAdd(wide[u], p, sum[t * kV + u]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kQ; ++t) {
#pragma GCC unroll 4
    for (int u = 0; u < kV; ++u) hn::Store(sum[t * kV + u], d, tile.value + t * padded_dim + column + u * kL);
  }
}

template <int kQ, typename T>
void AttendTile(const AttentionJob& job, Tile& tile) {
  const DF d;
  const int64_t head_dim = job.layout.head_dim;
  const int64_t padded = job.layout.padded_dim();
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  constexpr bool kScaled = std::is_same_v<T, int8_t>;
  for (int t = 0; t < kQ; ++t) {
    tile.top[t] = std::numeric_limits<float>::lowest();
    for (int64_t c = 0; c < kL; ++c) tile.sum[t * kL + c] = 0.0f;
    for (int64_t c = 0; c < padded; ++c) tile.value[t * padded + c] = 0.0f;
  }
  // Queries come in order of their row.
  const int64_t first = tile.low[0];
  const int64_t last = tile.high[kQ - 1];
  for (int64_t block = first / kKvBlock; block <= last / kKvBlock; ++block) {
    const int64_t begin = block * kKvBlock;
    const std::byte* at = job.pages[block % job.page_count] + job.offset;
    const auto* keys = reinterpret_cast<const T*>(at);
    const auto* values = reinterpret_cast<const T*>(at + job.layout.value_offset());
    const auto* scales = reinterpret_cast<const float*>(at + job.layout.scale_offset());
    Scores<kQ>(tile, keys, head_dim);
    for (int t = 0; t < kQ; ++t) Softmax<kScaled>(tile, t, begin, scale, scales, padded);
    const int64_t from = std::max<int64_t>(first - begin, 0);
    const int64_t to = std::min(last - begin + 1, kKvBlock);
    int64_t column = 0;
    for (; column + kVectors * kL <= padded; column += kVectors * kL) {
      Values<kQ, kVectors>(tile, values, padded, column, from, to);
    }
    for (; column < padded; column += kL) Values<kQ, 1>(tile, values, padded, column, from, to);
  }
  for (int t = 0; t < kQ; ++t) {
    const VF sum = hn::SumOfLanes(d, hn::Load(d, tile.sum + t * kL));
    const VF inverse = hn::Div(hn::Set(d, 1.0f), sum);
    float* value = tile.value + t * padded;
    for (int64_t c = 0; c < padded; c += kL) hn::Store(hn::Mul(hn::Load(d, value + c), inverse), d, value + c);
    std::copy_n(value, head_dim, tile.out[t]);
  }
}

HWY_INLINE void StoreElement(float value, float* to) { *to = value; }
HWY_INLINE void StoreElement(float value, Bf16* to) { to->bits = quant::F32ToBF16(value); }

// backend/kv_int8.h with a stride between codes; returns the scale.
HWY_INLINE float Encode(const float* x, int64_t count, int8_t* codes, int64_t stride) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  const bool empty = !(largest >= kSmallestKvMagnitude);
  const float inverse = empty ? 0.0f : 127.0f / largest;
  for (int64_t i = 0; i < count; ++i) codes[i * stride] = static_cast<int8_t>(std::lrintf(x[i] * inverse));
  return empty ? 0.0f : largest / 127.0f;
}

// One row of K (transposed into its block) and V.
template <typename T>
void AppendRow(const AttentionJob& job, int64_t row) {
  const int64_t index = job.first_index + row;
  const int64_t j = index % kKvBlock;
  std::byte* at = job.pages[(index / kKvBlock) % job.page_count] + job.offset;
  auto* keys = reinterpret_cast<T*>(at);
  auto* values = reinterpret_cast<T*>(at + job.layout.value_offset()) + j * job.layout.padded_dim();
  const float* k = job.k + row * job.qkv_stride;
  const float* v = job.v + row * job.qkv_stride;
  const int64_t head_dim = job.layout.head_dim;
  if constexpr (std::is_same_v<T, int8_t>) {
    auto* scales = reinterpret_cast<float*>(at + job.layout.scale_offset());
    scales[j] = Encode(k, head_dim, keys + j, kKvBlock);
    scales[kKvBlock + j] = Encode(v, head_dim, values, 1);
  } else {
    for (int64_t i = 0; i < head_dim; ++i) {
      StoreElement(k[i], keys + i * kKvBlock + j);
      StoreElement(v[i], values + i);
    }
  }
}

template <typename T>
void AttendRows(const AttentionJob& job, int64_t row_begin, int64_t row_end, Scratch& scratch) {
  const int64_t padded = job.layout.padded_dim();
  float* memory = scratch.Get<float>(kMaxQueries * (kL + kKvBlock + padded));
  Tile tile;
  tile.sum = memory;
  tile.score = memory + kMaxQueries * kL;
  tile.value = tile.score + kMaxQueries * kKvBlock;
  const int64_t end = row_end * job.group;
  for (int64_t at = row_begin * job.group; at < end; at += tile.queries) {
    tile.queries = static_cast<int>(std::min<int64_t>(kMaxQueries, end - at));
    if (tile.queries == 3) tile.queries = 2;
    for (int t = 0; t < tile.queries; ++t) {
      const int64_t row = (at + t) / job.group;
      const int64_t head = (at + t) % job.group;
      tile.q[t] = job.q + row * job.qkv_stride + head * job.layout.head_dim;
      tile.out[t] = job.out + row * job.out_stride + head * job.layout.head_dim;
      tile.high[t] = job.first_index + row;
      tile.low[t] = std::max<int64_t>(0, tile.high[t] - job.window + 1);
    }
    if (tile.queries == 1) {
      AttendTile<1, T>(job, tile);
    } else if (tile.queries == 2) {
      AttendTile<2, T>(job, tile);
    } else {
      AttendTile<kMaxQueries, T>(job, tile);
    }
  }
}

template <typename T>
void AttendAll(const AttentionJob& job, WorkerScratch& scratch) {
  // As many rows at a time as the ring holds beyond the window: row i still needs index i - window + 1.
  const int64_t spare = job.page_count * kKvBlock - (job.window - 1);
  for (int64_t row = 0; row < job.rows; row += spare) {
    const int64_t end = std::min(job.rows, row + spare);
    for (int64_t r = row; r < end; ++r) AppendRow<T>(job, r);
    AttendRows<T>(job, row, end, scratch.lanes);
  }
}

void Attention(const AttentionJob& job, WorkerScratch& scratch) {
  switch (job.layout.dtype) {
    case quant::DType::kBF16:
      return AttendAll<Bf16>(job, scratch);
    case quant::DType::kI8:
      return AttendAll<int8_t>(job, scratch);
    default:
      return AttendAll<float>(job, scratch);
  }
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(Attention);
void RunAttention(const AttentionJob& job, WorkerScratch& scratch) { HWY_DYNAMIC_DISPATCH(Attention)(job, scratch); }
}  // namespace voxrt::backend::cpu
#endif
