// Depths of the kernels' shared-memory pipelines, known to host planning and kernel instances alike.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace voxrt::cuda_kernels {

// Threads of the streaming kernel: 16 warps at 64 registers, two blocks an SM.
inline constexpr int kSmallThreads = 512;
inline constexpr int kSmallWarps = kSmallThreads / 32;

// Units in the ring of one warp of the streaming kernel, three depths: the deepest that leaves the phase its small
// place.
constexpr int RingSlots(WeightFormat format, int depth) {
  switch (format) {
    case WeightFormat::kInt4G128:
      return depth == 0 ? 4 : depth == 1 ? 3 : 2;
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt8Row:
    case WeightFormat::kInt8G32:
      return depth == 0 ? 3 : depth == 1 ? 2 : 1;
    case WeightFormat::kBf16:
      return depth == 0 ? 2 : 1;
  }
  return 1;
}
inline constexpr int kRingDepths = 3;

// Places on the SMs. Phases of a few rows overlap in pairs: the blocks of the next one get ready on the SMs while the
// present one works. That pays only while every SM has one block of each phase; an SM with two blocks of one phase
// doubles the phase, and hands the imbalance on. So such a phase has exactly one block per SM, idle ones included, and
// phases take a large and a small part of an SM's shared memory in turn: large + small fit an SM of 228 KB, two large
// do not. A large phase therefore lies on all SMs, and leaves each room for just one block of the small phase after it.
inline constexpr int kSmallPhaseBytes = 96 * 1024;
inline constexpr int kLargePhaseBytes = 129 * 1024;

// The wide kernel: most warps of a block, stages of its pipeline (deep enough for the latency of memory where stages
// are short), what a block takes besides to align them.
inline constexpr int kWideMostWarps = 12;
// The Hopper kernel: how many warps multiply at most, and threads of a block: four more warps ask for copies.
constexpr int HopperMostWarps(int n8) { return n8 == 16 ? 8 : kWideMostWarps; }
constexpr int HopperThreads(int warps) { return (warps + 4) * 32; }
constexpr int WideStages(int n8) { return n8 == 2 ? 8 : n8 == 4 ? 6 : n8 == 8 ? 4 : 3; }
inline constexpr int kWideMostStages = 8;
inline constexpr int kWideAlign = 1024;
inline constexpr int kWideSumsPad = 4;  // floats between the columns of its sums: no bank conflicts

// Attention: 8 warps a block; groups of eight chains, one a warp; key blocks in a warp's ring.
inline constexpr int kAttentionWarps = 8;
inline constexpr int kKeyBlock = 16;
constexpr int AttentionGroups(int head_dim) { return head_dim == 64 ? 4 : 8; }
constexpr int AttentionStages(int head_dim, bool int8) { return head_dim == 64 ? (int8 ? 3 : 2) : int8 ? 2 : 1; }
// One key block of K and V as stored, then 32 scales (int8).
constexpr int AttentionStage(int head_dim, bool int8) {
  return int8 ? 2 * kKeyBlock * head_dim + 2 * kKeyBlock * 4 : 2 * kKeyBlock * head_dim * 2;
}
inline constexpr int kAttentionItemBytes = 64;
inline constexpr int kMostBlockItems = 64;  // of a block

// `rows` queries of a tile, `block_groups` groups and `items` of a block. Rings, then own: int8 rows of this call [row]
// [K, V] and their scales, scales of q; partial: [group][warp][row](max, sum, values); weights: [group][row][warp];
// group: [group][row](max, sum).
constexpr AttentionLayout MakeAttentionLayout(int head_dim, bool int8, int rows, int block_groups, int items) {
  AttentionLayout l{};
  l.q = kAttentionWarps * AttentionStages(head_dim, int8) * AttentionStage(head_dim, int8);
  l.own = l.q + 16 * head_dim * 2;
  l.items = l.own + (int8 ? kMostOwnRows * 2 * (head_dim + 4) + 16 * 4 : 0);
  l.partial = l.items + items * kAttentionItemBytes;
  l.weights = l.partial + block_groups * kAttentionWarps * rows * (head_dim + 2) * 4;
  l.group = l.weights + block_groups * rows * kAttentionWarps * 4;
  l.total = l.group + block_groups * rows * 2 * 4;
  return l;
}

}  // namespace voxrt::cuda_kernels
