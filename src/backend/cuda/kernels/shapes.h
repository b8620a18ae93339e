// Depths of the kernels' shared-memory pipelines, known to host planning and kernel instances alike.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace voxrt::cuda_kernels {

// Threads of the streaming kernel: 16 warps at 64 registers, two blocks an SM.
inline constexpr int kSmallThreads = 512;
inline constexpr int kSmallWarps = kSmallThreads / 32;

// Units in the ring of one warp of the streaming kernel, three depths. A block takes 80 to 110 KB where it can: two
// phases then share an SM of 228 KB, three do not, so each SM has one block of each phase.
constexpr int RingSlots(WeightFormat format, int depth) {
  switch (format) {
    case WeightFormat::kInt4G128:
      return depth == 0 ? 5 : depth == 1 ? 3 : 2;
    case WeightFormat::kInt4G32:
      return depth == 0 ? 4 : depth == 1 ? 3 : 2;
    case WeightFormat::kInt8Row:
    case WeightFormat::kInt8G32:
      return depth == 0 ? 3 : depth == 1 ? 2 : 1;
    case WeightFormat::kBf16:
      return depth == 0 ? 2 : 1;
  }
  return 1;
}
inline constexpr int kRingDepths = 3;

// Least shared memory of a phase of a few rows: three blocks of this size do not fit an SM of 228 KB.
inline constexpr int kLeastPhaseBytes = 77 * 1024;

// Stages of 128 inputs of the tall kernel.
constexpr int TallStages(WeightFormat format, bool deep) {
  return format == WeightFormat::kBf16 ? (deep ? 3 : 2) : (deep ? 4 : 2);
}

// Attention: 8 warps a block. Encoder heads: 4 splits of 8 warps; decoder heads: 16 splits of 4 warps, two at a time.
inline constexpr int kAttentionWarps = 8;
constexpr int AttentionSplits(int head_dim) { return head_dim == 64 ? 4 : 16; }
constexpr int AttentionSplitsAtOnce(int head_dim) { return head_dim == 64 ? 1 : 2; }
constexpr int AttentionStages(int head_dim, bool deep) { return deep || head_dim == 64 ? 2 : 1; }

}  // namespace voxrt::cuda_kernels
