// The CPU backend's kernels as plain functions over pointers; each picks the best compiled instruction set when called.
// They know nothing of plans, sessions or threads: a job is what one worker does.
//
// Arithmetic (the same bits for every row count and every split over workers): a dot product along K has one
// accumulator per lane, lane l summing k = l, l + lanes, ... in rising order, then the lanes are added in the fixed
// order of ReduceLanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/stream.h"
#include "backend/view.h"
#include "quant/dtype.h"

namespace voxrt::backend::cpu {

// Storage types of 16 bits that C++ has no arithmetic for.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// Name of the instruction set in use ("AVX3_DL", "AVX2", ...) and whether this processor has any of the compiled ones.
const char* TargetName();
bool TargetAvailable();

// Uninitialised memory on a cache line, grown when a larger size is asked for, never shrunk. Content is lost when it
// grows.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* Get(int64_t count) {
    return static_cast<T*>(Bytes(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  void* Bytes(size_t bytes);
  void* data_ = nullptr;
  size_t size_ = 0;
};

// What one worker owns between calls.
struct WorkerScratch {
  Scratch weights;  // a block of weights widened to fp32
  Scratch x;        // input rows padded to whole vectors
  Scratch normed;   // input rows after the norm
  Scratch codes;    // input rows as int8
  Scratch partial;  // accumulators between chunks of columns
  Scratch lanes;    // arg-max state, attention tiles
};

// Rows [n_begin, n_end) of one weight matrix times all activation rows. The matrix in the storage of
// docs/model.md 12.7, but kInt4Tile: codes in the order of kInt4, scales and zeros apart. `pair` members: the up rows
// of the gate/up product, or null.
struct LinearJob {
  quant::Format format = {};
  const void* weight = nullptr;
  const void* pair = nullptr;
  const uint16_t* scale = nullptr;  // [weight rows, groups] bf16
  const uint16_t* pair_scale = nullptr;
  const uint16_t* zero = nullptr;  // likewise, kInt4Tile only
  const uint16_t* pair_zero = nullptr;
  const float* sums = nullptr;  // [weight rows] WeightSum, formats with int8 activations only
  const float* pair_sums = nullptr;
  int64_t cols = 0;
  int64_t n_begin = 0;
  int64_t n_end = 0;
  const float* x = nullptr;  // [rows, cols]
  int64_t x_stride = 0;
  const std::byte* quantized = nullptr;  // instead of x: [rows, QuantizedRowBytes(cols)] by QuantizeRow
  int64_t rows = 0;
  const float* bias = nullptr;       // [weight rows] or null
  const float* pair_bias = nullptr;  // likewise, of the up rows
  float* out = nullptr;              // [rows, weight rows] from weight row 0 on; null: not stored (arg-max only)
  int64_t out_stride = 0;
  Epilogue epilogue = Epilogue::kNone;
  // Arg-max over the rows of this job: best_value/best_index [rows], updated where a larger value is met.
  float* best_value = nullptr;
  int32_t* best_index = nullptr;
  int32_t index_base = 0;  // index of weight row 0
};
void RunLinear(const LinearJob& job, WorkerScratch& scratch);
// What RunLinear chooses between besides stored floats.
void RunLinearInteger(const LinearJob& job, WorkerScratch& scratch);
void RunLinearDequantized(const LinearJob& job, WorkerScratch& scratch);

// A row of int8 activations (docs/model.md 12.3) in the order that weights of `kind` are met.
int64_t QuantizedRowBytes(int64_t cols);
void QuantizeRow(const float* x, int64_t cols, quant::FormatKind kind, std::byte* out);
// sum over columns of scale * code of a row (one scale per row: of code alone), rounded once: what the zero point
// multiplies.
float WeightSum(const LinearJob& job, int64_t row);
// A quantized weight row of `job` as quant::Dequantize gives it.
void DequantizeRow(const LinearJob& job, int64_t row, float* out);

// out = x / sqrt(mean(x^2) + epsilon) * gain (* scale).
void RmsNormRow(const float* x, const float* gain, const float* scale, float epsilon, int64_t cols, float* out);

// Rotates `heads` heads at v in place; cosine and sine [head_dim / 2].
void RopeRow(float* v, int64_t heads, int64_t head_dim, RopePairing pairing, const float* cosine, const float* sine);

void GeluRow(const float* x, int64_t count, float* out);
void SiluMulRow(const float* gate, const float* up, int64_t count, float* out);
void AddRow(const float* x, int64_t count, float* out);
void ExpRow(const float* x, int64_t count, float* out);
// out[c * 3 + j] = tap j of channel c.
void GatherTaps(const float* tap0, const float* tap1, const float* tap2, int64_t channels, float* out);
// First index of the largest value.
int32_t ArgMaxRow(const float* x, int64_t count);
// Stored elements (F32, BF16 or F16) widened to fp32.
void WidenRow(const void* source, quant::DType dtype, int64_t count, float* out);

// K and V of one session, layer and head: pages of kKvBlock consecutive rows, page = (index / kKvBlock) mod page_count.
constexpr int64_t kKvBlock = 64;

// Inside a page a (layer, head) has keys transposed [head_dim, kKvBlock], values [kKvBlock, padded head_dim], and for
// kI8 the scales of keys and of values [kKvBlock] each.
struct KvLayout {
  quant::DType dtype = quant::DType::kF32;
  int64_t head_dim = 0;

  int64_t padded_dim() const { return (head_dim + 15) / 16 * 16; }
  int64_t element_bytes() const { return static_cast<int64_t>(quant::DTypeBytes(dtype)); }
  int64_t value_offset() const { return (head_dim * kKvBlock * element_bytes() + 63) / 64 * 64; }
  int64_t scale_offset() const { return value_offset() + kKvBlock * padded_dim() * element_bytes(); }
  int64_t bytes() const {
    return scale_offset() + (dtype == quant::DType::kI8 ? 2 * kKvBlock * static_cast<int64_t>(sizeof(float)) : 0);
  }
};

// All rows of one session for one K/V head and its query heads.
struct AttentionJob {
  KvLayout layout;
  std::byte* const* pages = nullptr;  // [page_count]
  int64_t page_count = 0;
  int64_t offset = 0;       // of this (layer, head) in a page
  int64_t first_index = 0;  // sequence index of row 0
  int64_t rows = 0;
  int64_t window = 0;
  const float* q = nullptr;  // row 0: `group` query heads of head_dim
  const float* k = nullptr;  // row 0: this head's key
  const float* v = nullptr;
  int64_t qkv_stride = 0;
  int group = 1;
  float* out = nullptr;  // row 0: `group` heads
  int64_t out_stride = 0;
};
// Stores the rows' keys and values in the ring, never evicting what an earlier row of the call still sees, and attends.
void RunAttention(const AttentionJob& job, WorkerScratch& scratch);

}  // namespace voxrt::backend::cpu
