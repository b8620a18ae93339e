// Arguments of all kernels as plain structs: raw device pointers and sizes, no engine types. Shared by host and device
// code.
//
// Terms. Unit: the weights of 16 output rows x 128 inputs in MMA fragment order, the atom of storage and of copying.
// Slice: a run of whole units along K that is summed by one chain of MMAs; slices are added in slice order. Both depend
// on the shape of the weight alone, so a result never depends on how many rows (columns of the MMA) run together.
#pragma once

#include <cstdint>

namespace voxrt::cuda_kernels {

enum class WeightFormat : int32_t { kInt4G128, kInt4G32, kInt8Row, kInt8G32, kBf16 };
inline constexpr int kWeightFormats = 5;

inline constexpr int kTileRows = 16;   // output rows of a unit
inline constexpr int kUnitCols = 128;  // inputs of a unit
inline constexpr int kMaxSlices = 16;
inline constexpr int kSmallRows = 8;  // most rows of the streaming kernel
inline constexpr int kPageTokens = 64;

// Bytes of a unit: codes, then scales (4 bit: pairs scale, zero for each row and group; 8 bit: one scale per row and
// group).
constexpr int UnitBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4G128:
      return 1024 + 64;
    case WeightFormat::kInt4G32:
      return 1024 + 256;
    case WeightFormat::kInt8Row:
      return 2048 + 32;
    case WeightFormat::kInt8G32:
      return 2048 + 128;
    case WeightFormat::kBf16:
      return 4096;
  }
  return 0;
}

// Units in memory: [four tiles][units along K][tile of the four], so that one copy takes a unit of each of four tiles.
inline constexpr int kTileGroup = 4;
constexpr int64_t UnitAt(int64_t tile, int unit, int units) {
  return (tile / kTileGroup * units + unit) * kTileGroup + tile % kTileGroup;
}
constexpr int64_t WeightBytes(WeightFormat format, int tiles, int units) {
  return int64_t{(tiles + kTileGroup - 1) / kTileGroup * kTileGroup} * units * UnitBytes(format);
}

// Units of one slice: up to sixteen slices of equal length, the last may be shorter.
constexpr int SliceUnits(int units) { return (units + kMaxSlices - 1) / kMaxSlices; }
constexpr int SliceCount(int units) { return (units + SliceUnits(units) - 1) / SliceUnits(units); }

// Slices of a group. Groups may be summed by blocks apart: up to four for weights of few tiles, whose tiles alone do
// not fill a device; one for the others. A group sums its slices in order, an output its groups.
inline constexpr int kMostGroups = 4;
constexpr int GroupSlices(int tiles, int units) {
  const int slices = SliceCount(units);
  const bool few = tiles < 256 || (tiles < 512 && units >= 16);
  return few ? (slices + kMostGroups - 1) / kMostGroups : slices;
}

struct WeightRef {
  const uint8_t* data = nullptr;  // WeightBytes, units in the order of UnitAt
  const float* bias = nullptr;    // [tiles * 16] or null
  WeightFormat format = WeightFormat::kBf16;
  int32_t rows = 0;  // valid rows
  int32_t cols = 0;  // valid inputs
  int32_t tiles = 0;
  int32_t units = 0;  // along K
};

enum class Element : int32_t { kF32, kBf16 };

// Rows that a linear reads. kNorm: x / rms * gain (* scale row). kConv: three consecutive frames, tap-major.
enum class InputKind : int32_t { kPlain, kNorm, kConv };

struct InputRef {
  InputKind kind = InputKind::kPlain;
  Element element = Element::kF32;
  const void* data = nullptr;
  int64_t stride = 0;                // elements
  int32_t aligned = 0;               // 16-byte rows, columns (and channels) in eights: whole vectors may be read
  const int32_t* row_map = nullptr;  // row r is row row_map[r] of data (head), or null
  // kNorm
  const float* gain = nullptr;         // [cols]
  const float* scales = nullptr;       // [delays, cols] or null
  const int32_t* scale_row = nullptr;  // [rows]
  float epsilon = 0.0f;
  // kConv
  int32_t conv_stride = 1;
  int32_t conv_channels = 0;
  int32_t frames_per_row = 0;          // input frames of one plan row
  float* tail = nullptr;               // [slots][tail rows][channels]
  const int32_t* row_slot = nullptr;   // of plan rows
  const int32_t* row_begin = nullptr;  // first plan row of the group of a plan row
  const int32_t* row_count = nullptr;  // rows of that group
  uint32_t* counter = nullptr;         // blocks that have read their input; one for each plan row where blocks are rows
};

// Where the K/V rows of sessions lie: [layer][page][k or v][head][64][head_dim], int8 with fp32 scales [...][64].
struct CacheRef {
  void* data = nullptr;            // of this layer
  float* scale = nullptr;          // of this layer (int8), else null
  const int32_t* pages = nullptr;  // [slots][pages_per_slot]
  int32_t pages_per_slot = 0;
  int32_t capacity = 0;  // tokens of a full ring
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

enum class OutputKind : int32_t { kStore, kGelu, kAddTo, kSwiGlu, kQkv, kHead };

struct OutputRef {
  OutputKind kind = OutputKind::kStore;
  Element element = Element::kF32;
  void* data = nullptr;  // may be null for kHead
  int64_t stride = 0;
  // kQkv
  int32_t heads = 0;
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
  const int32_t* row_slot = nullptr;
  const int64_t* row_index = nullptr;
  CacheRef cache;
  int32_t store_cache = 0;  // 0: K and V go to `data` only
  // kHead
  unsigned long long* best = nullptr;  // [rows], zero between calls
  uint32_t* counter = nullptr;         // zero between calls
  int32_t* token = nullptr;            // [rows]
  int32_t* slot_token = nullptr;       // [slots]
  const int32_t* head_row = nullptr;   // [rows] decoder rows
  int32_t* host_token = nullptr;       // mapped host memory [rows], or null
  uint32_t* host_flag = nullptr;       // mapped host memory
  uint32_t* sequence = nullptr;        // device counter of finished heads
};

// Weights of the phase after this one, to be pulled into L2 by all blocks together.
struct PrefetchRef {
  const void* data = nullptr;
  int64_t bytes = 0;
};

// Times inside a phase for measurements (%globaltimer, ns) of each block: start, previous phase done, input ready, sums
// ready, end; and the SM.
inline constexpr int kTraceMarks = 6;
inline constexpr int kTraceBlocks = 512;  // of a phase, at most

// Where the streaming kernel keeps what in shared memory (bytes), and how its work is dealt; computed on the host.
struct SmallPlan {
  int32_t x, x_stride, partial, partial_floats, bias, rope, token, parts;
  int32_t slices, slice_units, group_slices;
  uint32_t slice_reciprocal;              // item / slices = item * reciprocal >> 20
  uint32_t column_reciprocal;             // thread / rows, likewise
  int32_t block_tiles, block_tiles_rest;  // every block has block_tiles, the first block_tiles_rest one more
};

// How the wide kernel's work is dealt; computed on the host.
struct WidePlan {
  int32_t slice_units, group_units, groups;
  int32_t tile_groups, items;
  int32_t vectors;  // outputs may be read and written eight at a time
  // Hopper: stages of the pipeline; blocks of a cluster, the groups of an output, 1 where one block has them all.
  int32_t stages, cluster;
};

// A map of the rows of x for bulk copies, as the driver encodes it (rows_map.h).
struct RowsMap {
  alignas(64) uint64_t words[16];
};

struct LinearParams {
  WeightRef weight;
  InputRef input;
  OutputRef output;
  int32_t rows = 0;
  // Set by the launcher's plan.
  SmallPlan small{};
  WidePlan wide{};
  RowsMap rows_map{};
  int32_t tiles_per_block = 0;
  int32_t batch_tiles = 0;  // tiles folded together
  // Lowering fills in the rest.
  float* workspace = nullptr;
  uint32_t* split_counter = nullptr;
  PrefetchRef prefetch;
  unsigned long long* trace = nullptr;  // [kTraceBlocks][kTraceMarks] or null
};

// Where attention finds keys and values of its own call: in the ring like all others; beside q (bf16) or in own_codes
// (int8); or beside q as bf16, to be made int8 and put into the ring by the attention itself, which it does for a few
// rows of a session.
inline constexpr int32_t kOwnInRing = 0, kOwnBeside = 1, kOwnToQuantize = 2;
inline constexpr int kMostOwnRows = 8;

// Shared memory of the attention, byte offsets (shapes.h).
struct AttentionLayout {
  int32_t q, own, items, partial, weights, group, total;
};

struct AttentionParams {
  const void* q = nullptr;  // bf16 [rows, (heads + 2 kv_heads) head_dim], rotated
  int64_t q_stride = 0;
  void* out = nullptr;  // bf16 [rows, heads * head_dim]
  int64_t out_stride = 0;
  int32_t heads = 0;
  int32_t window = 0;
  CacheRef cache;
  const int8_t* own_codes = nullptr;  // int8 rows of a long call [rows][2][kv_heads][head_dim]
  const float* own_scale = nullptr;   // [rows][2][kv_heads]
  int32_t own_rows = kOwnInRing;
  const int32_t* row_slot = nullptr;
  const int64_t* row_index = nullptr;
  const int64_t* row_first = nullptr;  // index of the first row of the group
  const int32_t* row_begin = nullptr;
  const int32_t* tile_row = nullptr;  // [tiles]
  const int32_t* tile_rows = nullptr;
  int32_t tiles = 0;
  float softmax_scale_log2 = 0.0f;
  // Set by the launcher's plan.
  AttentionLayout layout{};
  int32_t items = 0, block_items = 0;  // of all blocks, of one at most
  int32_t group = 1;                   // query heads of a K/V head
  uint32_t group_reciprocal = 0;       // query t of a K/V head belongs to position t * reciprocal >> 20
  int32_t blocks_per_tile = 1;         // items that share the groups of one (tile, head)
  int32_t block_groups = 1;            // groups of an item
  int32_t part_shift = 0;              // item >> part_shift is its (tile, head)
  // Lowering fills in the rest.
  float* workspace = nullptr;  // partials of groups, where blocks share them
  uint32_t* counter = nullptr;
  PrefetchRef prefetch;
  unsigned long long* trace = nullptr;
};

struct RopeParams {
  void* qkv = nullptr;  // bf16
  int64_t stride = 0;
  int32_t rows = 0;
  int32_t heads = 0;
  int32_t half_pairs = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int32_t* row_slot = nullptr;
  const int64_t* row_index = nullptr;
  CacheRef cache;
  int32_t store_cache = 0;
  int8_t* own_codes = nullptr;
  float* own_scale = nullptr;
};

struct AppendParams {  // copies the last rows of a long call into the rings
  const void* qkv = nullptr;
  int64_t stride = 0;
  int32_t rows = 0;
  int32_t heads = 0;
  const int32_t* row_slot = nullptr;
  const int64_t* row_index = nullptr;
  const int32_t* row_begin = nullptr;
  const int32_t* row_count = nullptr;
  CacheRef cache;
  const int8_t* own_codes = nullptr;
  const float* own_scale = nullptr;
};

struct EmbedParams {
  int32_t shared_bytes = 0;  // the place of a phase (shapes.h), or 0
  WeightRef table;
  const float* audio = nullptr;
  int64_t audio_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  const int32_t* token = nullptr;
  const int32_t* audio_row = nullptr;
  const int32_t* row_slot = nullptr;
  const int32_t* slot_token = nullptr;
};

struct ElementwiseParams {
  int32_t operation = 0;  // 0 gelu, 1 add, 2 copy
  const void* x = nullptr;
  int64_t x_stride = 0;
  Element x_element = Element::kF32;
  void* out = nullptr;
  int64_t out_stride = 0;
  Element out_element = Element::kF32;
  int32_t rows = 0;
  int32_t cols = 0;
};

// Stores the rows of an InputRef as bf16 or fp32: RmsNorm, and the inputs of the wide kernel.
struct IngestParams {
  InputRef input;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t shared_bytes = 0;  // the place of a phase (shapes.h), or 0
  int32_t padded_cols = 0;   // zeros beyond cols
  void* out = nullptr;
  int64_t out_stride = 0;
  Element out_element = Element::kBf16;
  unsigned long long* trace = nullptr;
};

struct ArgMaxParams {
  const float* logits = nullptr;
  int64_t stride = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t* token = nullptr;
  int32_t* slot_token = nullptr;
  const int32_t* head_row = nullptr;
  const int32_t* row_slot = nullptr;
};

struct CloneParams {
  CacheRef cache;  // data and scale of layer 0
  int64_t layer_bytes = 0;
  int64_t layer_scales = 0;
  int32_t layers = 0;
  int32_t element_bytes = 2;
  int32_t from = 0;
  int32_t to = 0;
  int32_t pages = 0;
};

struct RepackParams {
  int32_t source = 0;  // 0 fp32, 1 bf16, 2 fp16, 3 int4 canonical, 4 int4 tile-packed, 5 int8
  const void* data = nullptr;
  const uint16_t* scale = nullptr;
  int32_t rows = 0;        // of this piece
  int32_t first_row = 0;   // of this piece in the source; `scale` belongs to the whole source
  int32_t total_rows = 0;  // of the source
  int32_t cols = 0;
  int32_t group = 0;          // of the source; 0 = row
  int32_t row_base = 0;       // device row of source row 0
  int32_t interleave = 0;     // 1: row r goes to (r / 8) * 16 + r % 8 (gate), 2: + 8 (up)
  int32_t conv_channels = 0;  // > 0: column tap * channels + c is read from c * 3 + tap
  WeightRef weight;
  uint8_t* out = nullptr;
};

}  // namespace voxrt::cuda_kernels
