// What a block of the attention (attention.cuh) works on: one item, where its rows lie in shared memory, and the units
// of its int8 arithmetic.
#pragma once

#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {

// Where 16-byte chunk `chunk` of row `row` lies in a staged block of K or V: without bank conflicts for ldmatrix (bf16)
// and for the reads of int8 rows below.
template <int kHeadDim, bool kInt8>
__host__ __device__ constexpr int StageOffset(bool is_v, int row, int chunk) {
  if (!kInt8) return row * kHeadDim * 2 + (chunk ^ (row & 7)) * 16;
  if (kHeadDim == 128) return row * kHeadDim + (chunk ^ (is_v ? ((row >> 1) & 3) << 1 : (row & 1) << 2)) * 16;
  if (!is_v) return row * kHeadDim + chunk * 16;
  return (row ^ ((row >> 1) & 1)) * kHeadDim + (chunk ^ ((row >> 2) & 1) << 1) * 16;
}

// Int8: 16-byte chunk `chunk` of query `row`: the upper bytes of all dimensions, then the lower ones.
template <int kHeadDim>
__host__ __device__ constexpr int QOffset(int row, int chunk) {
  return row * kHeadDim * 2 + (chunk ^ (row & 1) << 2) * 16;
}
// q in steps of 1 / kQUnits of the largest magnitude of its row, 128 times the upper byte plus the lower one: 1/128 of
// the step of the codes of K.
inline constexpr float kQUnits = 127 * 128;
// Weights times scales of V are fp16: in units that leave scales of 1e-6 to 1000 all its bits.
inline constexpr float kWeightUnit = 64.0f, kMostHalf = 65504.0f;

// An item. Key positions are relative to the first visible key block, so that 32 bits do.
struct AttentionItem {
  int pair, part, kv_head;              // (tile, K/V head), part of its groups
  int first_row, rows;                  // of the call; queries
  int low, first, last;                 // first visible key, key of the first and of the last row
  int call_first, call_row, own_first;  // first key of this call (negative: all are), its row; visible key from it on
  int base_ring, base_phase, pages;     // ring place and number of key block 0; page table
  int high_block;                       // last key block
  uint32_t rows_reciprocal;             // i / rows = i * reciprocal >> 16 of a small i
};
static_assert(sizeof(AttentionItem) == kAttentionItemBytes);

__device__ __forceinline__ AttentionItem DescribeItem(const AttentionParams& p, int item, int step) {
  AttentionItem a;
  const int kv_heads = p.cache.kv_heads;
  a.pair = item >> p.part_shift, a.part = item - a.pair * p.blocks_per_tile;
  const int tile = a.pair / kv_heads;
  a.kv_head = a.pair - tile * kv_heads;
  a.first_row = p.tile_row[tile];
  const int tile_rows = p.tile_rows[tile];
  const int64_t first_index = p.row_index[a.first_row];
  const int64_t lowest = max(static_cast<int64_t>(0), first_index - p.window + 1);
  const int64_t base = lowest / kKeyBlock * kKeyBlock;
  a.rows = tile_rows * p.group;
  a.low = static_cast<int>(lowest - base);
  a.first = static_cast<int>(first_index - base), a.last = a.first + tile_rows - 1;
  a.call_first = static_cast<int>(p.row_first[a.first_row] - base);
  a.call_row = p.row_begin[a.first_row];
  a.own_first = max(a.call_first, a.low);
  a.base_ring = RingPlace(base, p.cache.capacity);
  a.base_phase = static_cast<int>(base / kKeyBlock % step);
  a.pages = p.row_slot[a.first_row] * p.cache.pages_per_slot;
  a.high_block = a.last / kKeyBlock;
  a.rows_reciprocal = 0x10000u / static_cast<uint32_t>(a.rows) + 1;
  return a;
}

}  // namespace voxrt::cuda_kernels
