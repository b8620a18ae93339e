// Causal sliding-window attention over paged rings, one pass for all rows of a session in a call (up to 16 MMA rows:
// positions x query heads of one K/V head).
//
// Keys are taken in blocks of 16 by absolute index: block b belongs to split b % splits and there to warp (b / splits)
// % 8. So the border of every partial sum depends on key positions alone, never on batch, chunking or timing; a block
// that a row does not see leaves its running (max, sum, output) unchanged bit for bit. Each warp streams its blocks
// through a private ring of shared memory (cp.async), softmax and products run on m16n8k16 MMAs with fp32 accumulators.
// Partials merge in order: the warps of a block, then the splits. The splits of one (tile, head) may lie in several
// blocks: those form a cluster and hand their partials over through shared memory, each block finishing a share of the
// outputs; without clusters the partials go through global memory and the last block to arrive finishes all.
//
//   K/V of earlier calls are read before WaitForPrevious; q and K/V of this call after it.
#pragma once

#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {

struct AttentionLayout {  // byte offsets in shared memory
  int stage, tile, warp, q, partial, inbox, total;
};

// stage: one key block of K and V as stored; tile: the same widened to bf16 (int8 only).
// inbox: [splits][(max, sum) of each row, then the values that this block finishes].
__host__ __device__ inline AttentionLayout MakeAttentionLayout(int head_dim, bool int8, int stages, int tile_rows,
                                                               int blocks_per_tile) {
  AttentionLayout l{};
  l.stage = int8 ? 2 * kKeyBlock * head_dim + 2 * kKeyBlock * 4 : 2 * kKeyBlock * head_dim * 2;
  l.tile = int8 ? 2 * kKeyBlock * head_dim * 2 : 0;
  l.warp = stages * l.stage + l.tile;
  l.q = kAttentionWarps * l.warp;
  l.partial = l.q + 16 * head_dim * 2;
  l.inbox = l.partial + kAttentionWarps * tile_rows * (head_dim + 2) * 4;
  l.total = l.inbox + AttentionSplits(head_dim) *
                          (2 * tile_rows + (tile_rows * head_dim + blocks_per_tile - 1) / blocks_per_tile) * 4;
  return l;
}

// n partials, each a (max, sum) at m[i * stride] and a value at v[i * stride], merged in order.
struct Merged {
  float max, sum, value;
};
__device__ __forceinline__ Merged Merge(const float* m, const float* v, int count, int stride) {
  Merged merged{-INFINITY, 0.0f, 0.0f};
#pragma unroll 4
  for (int i = 0; i < count; ++i) merged.max = fmaxf(merged.max, m[i * stride]);
  const float safe = merged.max == -INFINITY ? 0.0f : merged.max;
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const float weight = exp2f(m[i * stride] - safe);
    merged.sum = fmaf(m[i * stride + 1], weight, merged.sum);
    merged.value = fmaf(v[i * stride], weight, merged.value);
  }
  return merged;
}

template <int kHeadDim, bool kInt8, int kStages>
__global__ void __launch_bounds__(kAttentionWarps * 32, 2) AttentionKernel(const __grid_constant__ AttentionParams p) {
  VOXRT_DYNAMIC_SHARED(smem);
  constexpr int kAttentionThreads = kAttentionWarps * 32, kAtOnce = AttentionSplitsAtOnce(kHeadDim),
                kSplitWarps = kAttentionWarps / kAtOnce;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
  const int kv_heads = p.cache.kv_heads, group = p.heads / kv_heads;
  const int tile_blocks = kv_heads * p.blocks_per_tile, tile = blockIdx.x / tile_blocks;
  const int kv_head = blockIdx.x % tile_blocks / p.blocks_per_tile, part = blockIdx.x % p.blocks_per_tile;
  LaunchDependents();
  Mark(p.trace, 0);
  const bool idle = tile >= p.tiles;
  const int first_row = idle ? 0 : p.tile_row[tile], tile_rows = idle ? 0 : p.tile_rows[tile];
  PrefetchShare(p.prefetch);
  if (tile_rows == 0) {  // a place in the grid without work: it keeps its place on the SM until the phase begins
    WaitForPrevious();
    return;  // alike for all blocks of a cluster
  }
  const int rows = tile_rows * group;  // MMA rows in use
  const AttentionLayout l = MakeAttentionLayout(kHeadDim, kInt8, kStages, rows, p.blocks_per_tile);
  constexpr int kRowStride = kHeadDim + 2;
  constexpr int kRowChunks = kHeadDim * (kInt8 ? 1 : 2) / 16;  // 16-byte chunks of a stored row

  const int slot = p.row_slot[first_row];
  // Key positions below are relative to the first visible block, so that 32 bits do.
  const int64_t first_index = p.row_index[first_row];
  const int64_t base = max(static_cast<int64_t>(0), first_index - p.window + 1) / kKeyBlock * kKeyBlock;
  const int first = static_cast<int>(first_index - base), last = first + tile_rows - 1;
  const int low = static_cast<int>(max(static_cast<int64_t>(0), first_index - p.window + 1) - base);
  const int call_first =
      static_cast<int>(p.row_first[first_row] - base);  // may be negative: the whole window is of this call
  const int call_row = p.row_begin[first_row];
  const int high_block = last / kKeyBlock;
  const int base_ring = static_cast<int>(base % p.cache.capacity);
  const int block_step = p.splits * kSplitWarps;
  const int base_phase = static_cast<int>(base / kKeyBlock % block_step);
  const int32_t* const pages = p.cache.pages + static_cast<int64_t>(slot) * p.cache.pages_per_slot;

  char* const own = smem + warp * l.warp;
  const uint32_t own_shared = SharedAddress(own);
  auto first_block = [&](int split) {  // smallest visible block of (split, warp)
    const int b = split + p.splits * (warp % kSplitWarps) - base_phase;
    return b < 0 ? b + block_step : b;
  };

  // Blocks of (split, warp) in order, over the splits of this thread block.
  const int split_step = p.blocks_per_tile * kAtOnce, own_split = part + p.blocks_per_tile * (warp / kSplitWarps);
  const int64_t v_step = static_cast<int64_t>(kv_heads) * kPageTokens;  // tokens from K to V of a page
  // K (0) or V (1) of block `block` into ring place `place`.
  auto load = [&](int block, int place, int is_v) {
    const uint32_t stage = own_shared + place * l.stage + is_v * kKeyBlock * kRowChunks * 16;
    const int key0 = block * kKeyBlock;
    int ring0 = base_ring + key0;
    while (ring0 >= p.cache.capacity) ring0 -= p.cache.capacity;
    const int page = __ldg(pages + ring0 / kPageTokens);
    const int64_t token0 =
        (static_cast<int64_t>(page) * 2 * kv_heads + kv_head) * kPageTokens + ring0 % kPageTokens + is_v * v_step;
    const char* const data = static_cast<const char*>(p.cache.data) + token0 * kHeadDim * (kInt8 ? 1 : 2);
    constexpr int kLoads = kKeyBlock * kRowChunks / 32;
    static_assert(32 % kRowChunks == 0);
    const int chunk = lane % kRowChunks;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = lane / kRowChunks + i * (32 / kRowChunks), key = key0 + row;
      const bool valid = key >= low && key <= last;
      const char* from = data + row * kRowChunks * 16 + chunk * 16;
      if (p.own_rows && key >= call_first && valid) {
        const int64_t r = call_row + key - call_first;
        if constexpr (kInt8) {
          from = reinterpret_cast<const char*>(p.own_codes) + ((r * 2 + is_v) * kv_heads + kv_head) * kHeadDim +
                 chunk * 16;
        } else {
          from = static_cast<const char*>(p.q) +
                 (r * p.q_stride + (p.heads + is_v * kv_heads + kv_head) * kHeadDim) * 2 + chunk * 16;
        }
      }
      const int to = kInt8 ? chunk : (chunk ^ (row & 7));
      CopyAsync16(stage + row * kRowChunks * 16 + to * 16, from, valid ? 16 : 0);
    }
    if constexpr (kInt8) {
      if (lane < kKeyBlock) {
        const int key = key0 + lane;
        float scale = 0.0f;
        if (key >= low && key <= last) {
          if (p.own_rows && key >= call_first) {
            scale = __ldcg(p.own_scale + ((call_row + key - call_first) * 2 + is_v) * kv_heads + kv_head);
          } else {
            scale = __ldcg(p.cache.scale + token0 + lane);
          }
        }
        reinterpret_cast<float*>(own + place * l.stage + 2 * kKeyBlock * kHeadDim)[is_v * kKeyBlock + lane] = scale;
      }
    }
  };
  // K runs ahead of V by one step: `k_*` is the next block whose K is to be loaded, `v_*` the next for V.
  struct Next {
    int split, block, place;
  };
  Next next_k{own_split, first_block(own_split), 0};
  auto settle = [&](Next& n) {
    while (n.split < p.splits && n.block > high_block) {
      n.split += split_step;
      if (n.split < p.splits) n.block = first_block(n.split);
    }
  };
  settle(next_k);
  Next next_v = next_k;
  auto advance = [&](Next& n, int is_v) {
    if (n.split < p.splits) {
      load(n.block, n.place, is_v);
      if (++n.place == kStages) n.place = 0;
      n.block += block_step;
      settle(n);
    }
    CommitAsync();
  };
  int filled = 0;
  while (filled < kStages && next_k.split < p.splits && next_k.block * kKeyBlock + kKeyBlock <= call_first) {
    advance(next_k, 0);
    advance(next_v, 1);
    ++filled;
  }

  if (p.cluster) ClusterArrive();  // nobody writes to a block that has not started
  WaitForPrevious();
  Mark(p.trace, 1);
#pragma unroll 1
  for (; filled < kStages; ++filled) {
    advance(next_k, 0);
    advance(next_v, 1);
  }
  // q tile: MMA row t = position t / group, head t % group.
  char* const q_tile = smem + l.q;
  for (int i = thread; i < 16 * kHeadDim / 8; i += kAttentionThreads) {
    const int t = i / (kHeadDim / 8), chunk = i % (kHeadDim / 8);
    uint4 v = {0, 0, 0, 0};
    if (t < rows)
      v = __ldcg(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(p.q) +
                                                (first_row + t / group) * p.q_stride +
                                                (kv_head * group + t % group) * kHeadDim) +
                 chunk);
    *reinterpret_cast<uint4*>(q_tile + t * kHeadDim * 2 + (chunk ^ (t & 7)) * 16) = v;
  }
  __syncthreads();

  Mark(p.trace, 2);
  const int index0 = g < rows ? first + g / group : -1;  // -1: sees nothing
  const int index1 = g + 8 < rows ? first + (g + 8) / group : -1;
  const int low0 = g < rows ? max(low, index0 - p.window + 1) : 0,
            low1 = g + 8 < rows ? max(low, index1 - p.window + 1) : 0;
  const uint32_t q_row = SharedAddress(q_tile) + (lane % 16) * kHeadDim * 2;
  const int q_swizzle = lane % 8;
  int place = 0;
  float* const partials = reinterpret_cast<float*>(smem + l.partial);
  float* const inbox = reinterpret_cast<float*>(smem + l.inbox);
  const uint32_t inbox_shared = SharedAddress(inbox);
  // Outputs [part * share, (part + 1) * share) of rows x head_dim are finished by this block of the cluster.
  const int values = rows * kHeadDim, share = (values + p.blocks_per_tile - 1) / p.blocks_per_tile;
  const int inbox_stride = 2 * rows + share;
  const bool local = p.blocks_per_tile == 1;
  float* const workspace = p.workspace + (static_cast<int64_t>(tile) * kv_heads + kv_head) * p.splits * 16 * kRowStride;
  if (p.cluster) ClusterWait();

  // int8 only: K or V of the current block as bf16 (exact) in the warp's tile.
  auto widen = [&](int is_v) {
    const char* const from = own + place * l.stage + is_v * kKeyBlock * kHeadDim;
    char* const tile_rows_at = own + kStages * l.stage + is_v * kKeyBlock * kHeadDim * 2;
#pragma unroll
    for (int i = 0; i < kKeyBlock * kHeadDim / 16 / 32; ++i) {
      const int at = lane + i * 32, row = at / (kHeadDim / 16), chunk = at % (kHeadDim / 16);
      const uint4 codes = LoadShared16(from + at * 16);
      const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
      uint32_t wide[8];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        wide[2 * w] = PackBf16(static_cast<float>(static_cast<int8_t>(word[w])),
                               static_cast<float>(static_cast<int8_t>(word[w] >> 8)));
        wide[2 * w + 1] = PackBf16(static_cast<float>(static_cast<int8_t>(word[w] >> 16)),
                                   static_cast<float>(static_cast<int8_t>(word[w] >> 24)));
      }
      char* const to = tile_rows_at + row * kHeadDim * 2;
      *reinterpret_cast<uint4*>(to + ((2 * chunk) ^ (row & 7)) * 16) = {wide[0], wide[1], wide[2], wide[3]};
      *reinterpret_cast<uint4*>(to + ((2 * chunk + 1) ^ (row & 7)) * 16) = {wide[4], wide[5], wide[6], wide[7]};
    }
    __syncwarp();
  };

  for (int split = own_split; split < p.splits; split += split_step) {
    float max0 = -INFINITY, max1 = -INFINITY, sum0 = 0.0f, sum1 = 0.0f;
    float o[kHeadDim / 8][4];
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
#pragma unroll 1
    for (int block = first_block(split); block <= high_block; block += block_step) {
      WaitAsync<2 * kStages - 1>();
      __syncwarp();
      const uint32_t stage = own_shared + place * l.stage;
      uint32_t k_base = stage, v_base = stage + kKeyBlock * kHeadDim * 2;
      const float* scales = nullptr;
      if constexpr (kInt8) {
        scales = reinterpret_cast<const float*>(own + place * l.stage + 2 * kKeyBlock * kHeadDim);
        k_base = own_shared + kStages * l.stage;
        v_base = k_base + kKeyBlock * kHeadDim * 2;
        widen(0);
      }
      float s[2][4] = {};
      {
        const int key = (lane / 16) * 8 + lane % 8;
        const uint32_t k_row = k_base + key * kHeadDim * 2;
#pragma unroll
        for (int step = 0; step < kHeadDim / 16; ++step) {
          uint32_t a[4], b[4];
          LoadMatrix4(a, q_row + ((step * 2 + lane / 16) ^ q_swizzle) * 16);
          LoadMatrix4(b, k_row + ((step * 2 + (lane / 8) % 2) ^ (key & 7)) * 16);
          Mma(s[0], a[0], a[1], a[2], a[3], b[0], b[1]);
          Mma(s[1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
      }
      float k_factor[2][2];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          k_factor[n][i] = kInt8 ? p.softmax_scale_log2 * scales[n * 8 + 2 * c + i] : p.softmax_scale_log2;
      __syncwarp();
      advance(next_k, 0);
      const int key0 = block * kKeyBlock + 2 * c;
      float block_max0 = -INFINITY, block_max1 = -INFINITY;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = key0 + n * 8 + i;
          const float factor = k_factor[n][i];
          s[n][i] = key <= index0 && key >= low0 ? s[n][i] * factor : -INFINITY;
          s[n][2 + i] = key <= index1 && key >= low1 ? s[n][2 + i] * factor : -INFINITY;
          block_max0 = fmaxf(block_max0, s[n][i]);
          block_max1 = fmaxf(block_max1, s[n][2 + i]);
        }
      }
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) {
        block_max0 = fmaxf(block_max0, __shfl_xor_sync(0xffffffffu, block_max0, offset));
        block_max1 = fmaxf(block_max1, __shfl_xor_sync(0xffffffffu, block_max1, offset));
      }
      const float new0 = fmaxf(max0, block_max0), new1 = fmaxf(max1, block_max1);
      const float safe0 = new0 == -INFINITY ? 0.0f : new0, safe1 = new1 == -INFINITY ? 0.0f : new1;
      const float alpha0 = exp2f(max0 - safe0), alpha1 = exp2f(max1 - safe1);
      max0 = new0, max1 = new1;
      WaitAsync<2 * kStages - 1>();
      __syncwarp();
      if constexpr (kInt8) widen(1);
      float row0 = 0.0f, row1 = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float p0 = exp2f(s[n][i] - safe0), p1 = exp2f(s[n][2 + i] - safe1);
          row0 += p0, row1 += p1;
          if constexpr (kInt8) p0 *= scales[16 + n * 8 + 2 * c + i], p1 *= scales[16 + n * 8 + 2 * c + i];
          s[n][i] = p0, s[n][2 + i] = p1;
        }
      }
      sum0 = fmaf(sum0, alpha0, row0), sum1 = fmaf(sum1, alpha1, row1);
      const uint32_t a[4] = {PackBf16(s[0][0], s[0][1]), PackBf16(s[0][2], s[0][3]), PackBf16(s[1][0], s[1][1]),
                             PackBf16(s[1][2], s[1][3])};
      const int v_key = ((lane / 8) % 2) * 8 + lane % 8;
      const uint32_t v_row = v_base + v_key * kHeadDim * 2;
#pragma unroll
      for (int j = 0; j < kHeadDim / 16; ++j) {
        uint32_t b[4];
        LoadMatrix4Transposed(b, v_row + ((j * 2 + lane / 16) ^ (v_key & 7)) * 16);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          float(&d)[4] = o[2 * j + n];
          d[0] *= alpha0, d[1] *= alpha0, d[2] *= alpha1, d[3] *= alpha1;
          Mma(d, a[0], a[1], a[2], a[3], b[2 * n], b[2 * n + 1]);
        }
      }
      __syncwarp();
      advance(next_v, 1);
      if (++place == kStages) place = 0;
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) {
      sum0 += __shfl_xor_sync(0xffffffffu, sum0, offset);
      sum1 += __shfl_xor_sync(0xffffffffu, sum1, offset);
    }
    float* const mine = partials + warp * rows * kRowStride;
    if (g < rows) {
      float* const row = mine + g * kRowStride;
      if (c == 0) row[0] = max0, row[1] = sum0;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) *reinterpret_cast<float2*>(row + 2 + j * 8 + 2 * c) = {o[j][0], o[j][1]};
    }
    if (g + 8 < rows) {
      float* const row = mine + (g + 8) * kRowStride;
      if (c == 0) row[0] = max1, row[1] = sum1;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) *reinterpret_cast<float2*>(row + 2 + j * 8 + 2 * c) = {o[j][2], o[j][3]};
    }
    __syncthreads();
    const int turn = split - own_split;  // the same for all warps
    for (int n = thread; n < values * kAtOnce; n += kAttentionThreads) {
      const int which = n < values ? 0 : 1, i = n - which * values;
      const int r = i / kHeadDim, d = i % kHeadDim, merged_split = part + turn + which * p.blocks_per_tile;
      const float* const from = partials + (which * kSplitWarps * rows + r) * kRowStride;
      const Merged m = Merge(from, from + 2 + d, kSplitWarps, rows * kRowStride);
      if (local || p.cluster) {
        const int owner = i / share, at = merged_split * inbox_stride + 2 * rows + i % share;
        if (local) {
          inbox[at] = m.value;
        } else {
          StoreCluster(inbox_shared + at * 4, owner, m.value);
        }
        if (d < p.blocks_per_tile) {  // one thread for each block that needs the row's maximum and sum
          const int head = merged_split * inbox_stride + 2 * r;
          if (local) {
            inbox[head] = m.max, inbox[head + 1] = m.sum;
          } else {
            StoreCluster(inbox_shared + head * 4, d, m.max);
            StoreCluster(inbox_shared + head * 4 + 4, d, m.sum);
          }
        }
      } else {
        float* const to = workspace + (merged_split * 16 + r) * kRowStride;
        if (d == 0) to[0] = m.max, to[1] = m.sum;
        to[2 + d] = m.value;
      }
    }
    __syncthreads();
  }

  Mark(p.trace, 3);
  auto finish = [&](int i, const Merged& m) {
    const int t = i / kHeadDim, d = i % kHeadDim;
    const int64_t at = (first_row + t / group) * p.out_stride + (kv_head * group + t % group) * kHeadDim + d;
    static_cast<__nv_bfloat16*>(p.out)[at] = __float2bfloat16_rn(m.value / m.sum);
  };
  if (local || p.cluster) {
    if (p.cluster) {
      ClusterArrive();
      ClusterWait();
    }
    const int first_value = part * share, end_value = min(first_value + share, values);
    for (int i = first_value + thread; i < end_value; i += kAttentionThreads) {
      finish(i, Merge(inbox + 2 * (i / kHeadDim), inbox + 2 * rows + i - first_value, p.splits, inbox_stride));
    }
  } else {
    __shared__ uint32_t arrived;
    __threadfence();
    __syncthreads();
    uint32_t* const counter = p.counter + tile * kv_heads + kv_head;
    if (thread == 0) arrived = atomicAdd(counter, 1u);
    __syncthreads();
    if (arrived != static_cast<uint32_t>(p.blocks_per_tile) - 1) return;
    __threadfence();
    if (thread == 0) *counter = 0;
    // Maxima and sums of all splits to shared memory while the values travel; then Merge's arithmetic.
    constexpr int kSplits = AttentionSplits(kHeadDim);
    float* const heads = partials;  // [splits][rows](max, sum)
    for (int i = thread; i < rows * kSplits; i += kAttentionThreads) {
      const int s = i / rows, r = i - s * rows;
      const float2 head = __ldcg(reinterpret_cast<const float2*>(workspace + (s * 16 + r) * kRowStride));
      heads[2 * i] = head.x, heads[2 * i + 1] = head.y;
    }
    bool ready = false;
    for (int first_value = 0; first_value < values; first_value += kAttentionThreads) {
      const int i = first_value + thread, r = min(i, values - 1) / kHeadDim;
      float v[kSplits];
#pragma unroll
      for (int s = 0; s < kSplits; ++s)
        v[s] = i < values ? __ldcg(workspace + (s * 16 + r) * kRowStride + 2 + i % kHeadDim) : 0.0f;
      if (!ready) __syncthreads();
      ready = true;
      Merged m{-INFINITY, 0.0f, 0.0f};
#pragma unroll
      for (int s = 0; s < kSplits; ++s) m.max = fmaxf(m.max, heads[2 * (s * rows + r)]);
      const float safe = m.max == -INFINITY ? 0.0f : m.max;
#pragma unroll
      for (int s = 0; s < kSplits; ++s) {
        const float weight = exp2f(heads[2 * (s * rows + r)] - safe);
        m.sum = fmaf(heads[2 * (s * rows + r) + 1], weight, m.sum);
        m.value = fmaf(v[s], weight, m.value);
      }
      if (i < values) finish(i, m);
    }
  }
  Mark(p.trace, 4);
}

}  // namespace voxrt::cuda_kernels
