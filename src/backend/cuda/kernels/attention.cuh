// Causal sliding-window attention over paged rings: keys are the rows of the MMAs and queries their
// columns, so that the few queries of a live tick fill them. int8 codes of K are multiplied as they are, by q as two
// bytes; those of V become fp16 in registers.
//
// Keys are taken in blocks of 16 by absolute index: block b belongs to group b % groups and there to warp (b / groups)
// % 8, a chain of running (max, sum, output). Chains of a group merge in warp order, then the groups in order. So every
// border depends on key positions alone, never on batch, chunking or timing, and a block that a row does not see leaves
// its chain unchanged bit for bit.
//
// An item is one (tile, K/V head), or a part of its groups: then the last block of threads to arrive merges the parts.
// A block takes every gridDim.x-th item. Each warp streams its key blocks through a private ring of shared memory
// (cp.async), from chain to chain and on into the next item while the warps of the block merge the present one.
//
//   K/V of earlier calls are read before WaitForPrevious; q and K/V of this call after it.
#pragma once

#include "backend/cuda/kernels/attention_item.cuh"
#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {

template <int kHeadDim, bool kInt8, int kQ8>
__global__ void __launch_bounds__(kAttentionWarps * 32, 2) AttentionKernel(const __grid_constant__ AttentionParams p) {
  VOXRT_DYNAMIC_SHARED(smem);
  constexpr int kThreads = kAttentionWarps * 32, kGroups = AttentionGroups(kHeadDim), kStep = kGroups * kAttentionWarps;
  constexpr int kStages = AttentionStages(kHeadDim, kInt8);
  constexpr int kRowStride = kHeadDim + 2, kRowBytes = kHeadDim * (kInt8 ? 1 : 2), kRowChunks = kRowBytes / 16;
  constexpr int kVOffset = kKeyBlock * kRowBytes, kScaleOffset = 2 * kVOffset, kStage = AttentionStage(kHeadDim, kInt8);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
  LaunchDependents();
  Mark(p.trace, 0);
  const unsigned last_item = blockIdx.x + static_cast<unsigned>(p.block_items - 1) * gridDim.x;
  const int mine = last_item < static_cast<unsigned>(p.items) ? p.block_items : p.block_items - 1;
  auto* const items = reinterpret_cast<AttentionItem*>(smem + p.layout.items);
  if (thread < mine) items[thread] = DescribeItem(p, static_cast<int>(blockIdx.x + thread * gridDim.x), kStep);
  PrefetchShare(p.prefetch);
  if (mine == 0) {  // a place in the grid without work: it keeps its place on the SM until the phase begins
    WaitForPrevious();
    return;
  }
  __syncthreads();
  const int kv_heads = p.cache.kv_heads, group = p.group, block_groups = p.block_groups;
  auto position_of = [&](int t) { return static_cast<int>((static_cast<uint32_t>(t) * p.group_reciprocal) >> 20); };
  const bool quantize = kInt8 && p.own_rows == kOwnToQuantize;
  const int v_tokens = kv_heads * kPageTokens, v_bytes = v_tokens * kRowBytes;  // from K to V of a page
  auto token_of = [&](const AttentionItem& a, int key) {                        // of K
    auto ring0 = static_cast<unsigned>(a.base_ring + key);
#pragma unroll 1
    while (ring0 >= static_cast<unsigned>(p.cache.capacity)) ring0 -= static_cast<unsigned>(p.cache.capacity);
    const int page = __ldg(p.cache.pages + a.pages + ring0 / kPageTokens);
    return page * 2 * v_tokens + a.kv_head * kPageTokens + static_cast<int>(ring0 % kPageTokens);
  };

  char* const ring = smem + warp * kStages * kStage;
  const uint32_t ring_shared = SharedAddress(ring);
  // K and V of key block `block` of an item into ring place `place`.
  constexpr int kLoads = kKeyBlock * kRowChunks / 32, kLoadRows = 32 / kRowChunks;
  const int row0 = lane / kRowChunks, row0_chunk = lane % kRowChunks;
  // What a lane adds to each address. Where registers allow it is kept, not found out again for each key block.
  const char* lane_data = static_cast<const char*>(p.cache.data) + lane * 16;
  const float* lane_scale = kInt8 ? p.cache.scale + (lane / 4 % 2 * v_tokens + lane % 4 * 4) : nullptr;
  if (kHeadDim == 64) lane_data = Keep(lane_data), lane_scale = Keep(lane_scale);
  auto load = [&](const AttentionItem& a, int block, int place) {
    const int key0 = block * kKeyBlock, token = token_of(a, key0);
    const uint32_t stage = ring_shared + place * kStage;
    const char* const data = lane_data + static_cast<int64_t>(token) * kRowBytes;
    // Codes of keys that nobody sees do no harm; a bf16 row may be NaN, whose product with a weight of 0 counts.
    const bool whole = (kInt8 || (key0 >= a.low && key0 + kKeyBlock - 1 <= a.last)) &&
                       !(p.own_rows == kOwnBeside && key0 + kKeyBlock > a.call_first);
    if (whole) {
#pragma unroll
      for (int is_v = 0; is_v < 2; ++is_v)
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
          CopyAsync16(stage + is_v * kVOffset + StageOffset<kHeadDim, kInt8>(is_v, row0 + i * kLoadRows, row0_chunk),
                      data + is_v * v_bytes + i * 512);
      if (kInt8 && lane < 8) CopyAsync16(stage + kScaleOffset + lane * 16, lane_scale + token);
      return;
    }
#pragma unroll 1
    for (int is_v = 0; is_v < 2; ++is_v) {
#pragma unroll 1
      for (int i = 0; i < kLoads; ++i) {
        const int row = row0 + i * kLoadRows, key = key0 + row;
        const bool valid = key >= a.low && key <= a.last;
        const char* from = data + is_v * v_bytes + i * 512;
        if (valid && p.own_rows == kOwnBeside && key >= a.call_first) {
          const int64_t r = a.call_row + key - a.call_first;
          from = kInt8
                     ? reinterpret_cast<const char*>(p.own_codes) + ((r * 2 + is_v) * kv_heads + a.kv_head) * kHeadDim +
                           row0_chunk * 16
                     : static_cast<const char*>(p.q) +
                           (r * p.q_stride + (p.heads + is_v * kv_heads + a.kv_head) * kHeadDim) * 2 + row0_chunk * 16;
        }
        CopyAsync16(stage + is_v * kVOffset + StageOffset<kHeadDim, kInt8>(is_v, row, row0_chunk), from,
                    valid ? 16 : 0);
      }
    }
    if constexpr (kInt8) {
      const int key = key0 + lane % kKeyBlock, is_v = lane / kKeyBlock;
      const float* const from =
          key >= a.call_first ? p.own_scale + ((a.call_row + key - a.call_first) * 2 + is_v) * kv_heads + a.kv_head
                              : p.cache.scale + token + is_v * v_tokens + lane % kKeyBlock;
      reinterpret_cast<float*>(ring + place * kStage + kScaleOffset)[lane] = key <= a.last ? __ldcg(from) : 0.0f;
    }
  };
  // Key blocks of this warp in order: those of its chain of each group of each item of this thread block.
  auto first_block = [&](const AttentionItem& a, int which) {
    const int b = a.part * block_groups + which + kGroups * warp - a.base_phase;
    return b < 0 ? b + kStep : b;
  };
  int next_item = 0, next_which = 0, next_block = first_block(items[0], 0);
  auto settle = [&] {  // whether there is one more
#pragma unroll 1
    while (next_item < mine && next_block > items[next_item].high_block) {
      if (++next_which == block_groups) {
        next_which = 0;
        if (++next_item == mine) break;
      }
      next_block = first_block(items[next_item], next_which);
    }
    return next_item < mine;
  };
  auto advance = [&](bool some, int place) {
    if (some) {
      load(items[next_item], next_block, place);
      next_block += kStep;
    }
    CommitAsync();
  };
  // q tile: query t = position t / group, head t % group. A thread has eight values of one query.
  char* const q_tile = smem + p.layout.q;
  static_assert(kQ8 * kHeadDim <= kThreads);
  constexpr int kRowThreads = kHeadDim / 8;
  const int q_row = thread / kRowThreads, row_chunk = thread % kRowThreads;
  uint4 q_values, own_values;
  // kOwnToQuantize: eight values of one row of K or V of this call, whose int8 form goes into the ring, and for the
  // stages that want it to `own`.
  char* const own = smem + p.layout.own;
  auto* const own_scales = reinterpret_cast<float*>(own + kMostOwnRows * 2 * kHeadDim);
  float* const q_scales = own_scales + kMostOwnRows * 2;
  static_assert(kMostOwnRows * 2 * kRowThreads <= kThreads);
  const auto* const x = static_cast<const __nv_bfloat16*>(p.q);
  const int q_stride = static_cast<int>(p.q_stride), q_position = position_of(q_row);
  const int q_offset = q_position * q_stride + (q_row - q_position * group) * kHeadDim + row_chunk * 8;
  const int own_offset = q_row / 2 * q_stride + (p.heads + q_row % 2 * kv_heads) * kHeadDim + row_chunk * 8;
  auto load_inputs = [&](const AttentionItem& a) {
    q_values = own_values = {0, 0, 0, 0};
    if (q_row < a.rows)
      q_values = __ldcg(
          reinterpret_cast<const uint4*>(x + a.first_row * p.q_stride + (a.kv_head * group * kHeadDim + q_offset)));
    if (quantize && a.own_first + q_row / 2 <= a.last)
      own_values = __ldcg(reinterpret_cast<const uint4*>(x + (a.call_row + a.own_first - a.call_first) * p.q_stride +
                                                         (a.kv_head * kHeadDim + own_offset)));
  };
  auto largest = [&](const uint4& values) {  // of a row
    const uint32_t pairs[4] = {values.x, values.y, values.z, values.w};
    float top = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) top = fmaxf(top, fmaxf(fabsf(LowBf16(pairs[i])), fabsf(HighBf16(pairs[i]))));
#pragma unroll
    for (int offset = kRowThreads / 2; offset > 0; offset /= 2)
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
    return top;
  };
  auto store_inputs = [&](const AttentionItem& a) {
    if constexpr (!kInt8) {
      if (q_row < kQ8 * 8)
        *reinterpret_cast<uint4*>(q_tile + q_row * kHeadDim * 2 + (row_chunk ^ (q_row & 7)) * 16) = q_values;
      return;
    }
    const float q_top = largest(q_values), own_top = largest(own_values);
    if (q_row < kQ8 * 8) {
      const float inverse = q_top < 1e-30f ? 0.0f : __fdividef(kQUnits, q_top);
      const uint32_t pairs[4] = {q_values.x, q_values.y, q_values.z, q_values.w};
      uint32_t upper[2] = {0, 0}, lower[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int code = static_cast<int>(rintf((i % 2 ? HighBf16(pairs[i / 2]) : LowBf16(pairs[i / 2])) * inverse));
        const int part = (code + 64) >> 7;
        upper[i / 4] |= (part & 255) << i % 4 * 8, lower[i / 4] |= ((code - part * 128) & 255) << i % 4 * 8;
      }
      const int in_chunk = row_chunk % 2 * 8;
      *reinterpret_cast<uint2*>(q_tile + QOffset<kHeadDim>(q_row, row_chunk / 2) + in_chunk) = {upper[0], upper[1]};
      *reinterpret_cast<uint2*>(q_tile + QOffset<kHeadDim>(q_row, (kHeadDim / 8 + row_chunk) / 2) + in_chunk) = {
          lower[0], lower[1]};
      if (row_chunk == 0) q_scales[q_row] = q_top * (1.0f / kQUnits);
    }
    if (!quantize) return;
    const int key = a.own_first + q_row / 2;
    if (key > a.last) return;
    const KvScale scale(own_top);
    const uint32_t pairs[4] = {own_values.x, own_values.y, own_values.z, own_values.w};
    uint32_t codes[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      codes[i / 2] |= ((scale.Code(LowBf16(pairs[i])) & 255) | (scale.Code(HighBf16(pairs[i])) & 255) << 8)
                      << i % 2 * 16;
    const uint2 eight = {codes[0], codes[1]};
    *reinterpret_cast<uint2*>(own + q_row * kHeadDim + row_chunk * 8) = eight;
    if (row_chunk == 0) own_scales[q_row] = scale.scale;
    if (a.part != 0) return;
    const int token = token_of(a, key) + q_row % 2 * v_tokens;  // tiles of one call write the same
    *reinterpret_cast<uint2*>(static_cast<char*>(p.cache.data) + static_cast<int64_t>(token) * kHeadDim +
                              row_chunk * 8) = eight;
    if (row_chunk == 0) p.cache.scale[token] = scale.scale;
  };
  bool waited = false;
#pragma unroll 1
  for (int i = 0; i <= kStages; ++i) {
    const bool some = i < kStages && settle();
    const bool early = some && (quantize || next_block * kKeyBlock + kKeyBlock <= items[next_item].call_first);
    if (!waited && !early) {
      WaitForPrevious();
      Mark(p.trace, 1);
      load_inputs(items[0]);
      waited = true;
    }
    if (i < kStages) advance(some, i);
  }
  int place = 0;
#pragma unroll 1
  for (int turn = 0; turn < mine; ++turn) {
    const AttentionItem& item = items[turn];
    store_inputs(item);
    __syncthreads();
    Mark(p.trace, 2);

    const int rows = item.rows, low = item.low, first = item.first, last = item.last;
    // Queries of this lane: 2 c and 2 c + 1 of each eight; where they see keys.
    int index[kQ8][2], lows[kQ8][2];
    float q_factor[kQ8][2] = {};
#pragma unroll
    for (int n = 0; n < kQ8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int t = n * 8 + 2 * c + i;
        index[n][i] = t < rows ? first + position_of(t) : -1;  // -1: sees nothing
        lows[n][i] = max(low, index[n][i] - p.window + 1);
        if (kInt8) q_factor[n][i] = q_scales[t] * p.softmax_scale_log2;
      }
    const int all_low = max(low, last - p.window + 1);  // keys from here to `first` are seen by all queries
    float* const partials = reinterpret_cast<float*>(smem + p.layout.partial);
    const uint32_t q_shared = SharedAddress(q_tile);
#pragma unroll 1
    for (int which = 0; which < block_groups; ++which) {
      float top[kQ8][2], sum[kQ8][2], o[kHeadDim / 16][kQ8][4];
#pragma unroll
      for (int n = 0; n < kQ8; ++n) {
        top[n][0] = top[n][1] = -INFINITY, sum[n][0] = sum[n][1] = 0.0f;
#pragma unroll
        for (int j = 0; j < kHeadDim / 16; ++j) o[j][n][0] = o[j][n][1] = o[j][n][2] = o[j][n][3] = 0.0f;
      }
      bool begun = false;
#pragma unroll 1
      for (int block = first_block(item, which); block <= item.high_block; block += kStep) {
        WaitAsync<kStages - 1>();
        __syncwarp();
        const uint32_t stage = ring_shared + place * kStage;
        char* const stage_at = ring + place * kStage;
        if (quantize && block * kKeyBlock + kKeyBlock > item.own_first) {
          const int first_own = max(item.own_first - block * kKeyBlock, 0);
          const int chunks = (min(last - block * kKeyBlock, kKeyBlock - 1) - first_own + 1) * 2 * kRowChunks;
#pragma unroll 1
          for (int i = lane; i < chunks; i += 32) {
            const int row = first_own + i / (2 * kRowChunks), is_v = i / kRowChunks % 2, chunk = i % kRowChunks;
            const int from = (block * kKeyBlock + row - item.own_first) * 2 + is_v;
            *reinterpret_cast<uint4*>(stage_at + is_v * kVOffset + StageOffset<kHeadDim, kInt8>(is_v, row, chunk)) =
                LoadShared16(own + from * kHeadDim + chunk * 16);
            if (chunk == 0)
              reinterpret_cast<float*>(stage_at + kScaleOffset)[is_v * kKeyBlock + row] = own_scales[from];
          }
          __syncwarp();
        }
        float v[kQ8][4];         // scores, then weights
        if constexpr (!kInt8) {  // two chains of MMAs, over even and odd steps of 16 dimensions
          float s[kQ8][2][4] = {};
          const int k_row = lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
          for (int pair = 0; pair < kHeadDim / 32; ++pair) {
            uint32_t a[2][4];
            LoadMatrix4(a[0], stage + StageOffset<kHeadDim, false>(false, k_row, pair * 4 + lane / 16));
            LoadMatrix4(a[1], stage + StageOffset<kHeadDim, false>(false, k_row, pair * 4 + 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < kQ8; ++n) {
              uint32_t b[4];
              LoadMatrix4(b, q_shared + (n * 8 + lane % 8) * kHeadDim * 2 + ((pair * 4 + lane / 8) ^ (lane % 8)) * 16);
              Mma(s[n][0], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
              Mma(s[n][1], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
            }
          }
#pragma unroll
          for (int n = 0; n < kQ8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) v[n][i] = (s[n][0][i] + s[n][1][i]) * p.softmax_scale_log2;
        } else {
          // Codes are multiplied as they are. A lane takes dimensions 16 c .. of 64, eight of them for each step, of
          // keys g and g + 8; q in the same order, its upper and its lower part.
          int upper[kQ8][4] = {}, lower[kQ8][4] = {};
#pragma unroll
          for (int t = 0; t < kHeadDim / 64; ++t) {
            const uint4 k0 = LoadShared16(stage_at + StageOffset<kHeadDim, true>(false, g, t * 4 + c));
            const uint4 k8 = LoadShared16(stage_at + StageOffset<kHeadDim, true>(false, g + 8, t * 4 + c));
#pragma unroll
            for (int n = 0; n < kQ8; ++n) {
              const uint4 q_upper = LoadShared16(q_tile + QOffset<kHeadDim>(n * 8 + g, t * 4 + c));
              const uint4 q_lower = LoadShared16(q_tile + QOffset<kHeadDim>(n * 8 + g, kHeadDim / 16 + t * 4 + c));
              MmaInt8(upper[n], k0.x, k8.x, k0.y, k8.y, q_upper.x, q_upper.y);
              MmaInt8(lower[n], k0.x, k8.x, k0.y, k8.y, q_lower.x, q_lower.y);
              MmaInt8(upper[n], k0.z, k8.z, k0.w, k8.w, q_upper.z, q_upper.w);
              MmaInt8(lower[n], k0.z, k8.z, k0.w, k8.w, q_lower.z, q_lower.w);
            }
          }
          const auto* const scales = reinterpret_cast<const float*>(stage_at + kScaleOffset);
          const float k_scale[2] = {scales[g], scales[g + 8]};
#pragma unroll
          for (int n = 0; n < kQ8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              v[n][i] = static_cast<float>(upper[n][i] * 128 + lower[n][i]) * k_scale[i / 2] * q_factor[n][i % 2];
        }
        const int key = block * kKeyBlock + g;
        const bool all = block * kKeyBlock >= all_low && block * kKeyBlock + kKeyBlock - 1 <= first;
        uint32_t weights[kQ8][2];
        float last_top[kQ8][2];
        bool rescale = false;
#pragma unroll
        for (int n = 0; n < kQ8; ++n) {
          if (!all) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int at = key + i / 2 * 8;
              if (at > index[n][i % 2] || at < lows[n][i % 2]) v[n][i] = -INFINITY;
            }
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float most = fmaxf(v[n][i], v[n][2 + i]);
#pragma unroll
            for (int offset = 4; offset < 32; offset *= 2)
              most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
            last_top[n][i] = top[n][i];
            top[n][i] = fmaxf(top[n][i], most);
            rescale = rescale || most > last_top[n][i];
          }
        }
        // Most blocks leave the maxima as they are.
        if (__any_sync(0xffffffffu, rescale)) {
#pragma unroll
          for (int n = 0; n < kQ8; ++n) {
            float alpha[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              alpha[i] = top[n][i] == -INFINITY ? 1.0f : Exp2(last_top[n][i] - top[n][i]);
              sum[n][i] *= alpha[i];
            }
            if (!begun) continue;  // outputs are zero
#pragma unroll
            for (int j = 0; j < kHeadDim / 16; ++j)
#pragma unroll
              for (int i = 0; i < 4; ++i) o[j][n][i] *= alpha[i % 2];
          }
        }
        begun = true;
#pragma unroll
        for (int n = 0; n < kQ8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float safe = top[n][i] == -INFINITY ? 0.0f : top[n][i];
            v[n][i] = Exp2(v[n][i] - safe), v[n][2 + i] = Exp2(v[n][2 + i] - safe);
            sum[n][i] += v[n][i] + v[n][2 + i];
          }
        if constexpr (kInt8) {
          const auto* const scales = reinterpret_cast<const float*>(stage_at + kScaleOffset) + kKeyBlock;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            // The scale of a key that nobody sees may be NaN: its weight of 0 stays.
            const float v_scale = fminf(scales[g + i * 8] * kWeightUnit, kMostHalf);
#pragma unroll
            for (int n = 0; n < kQ8; ++n) v[n][2 * i] *= v_scale, v[n][2 * i + 1] *= v_scale;
          }
        }
#pragma unroll
        for (int n = 0; n < kQ8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            weights[n][i] = MoveMatrixTransposed(kInt8 ? PackHalf(v[n][2 * i], v[n][2 * i + 1])
                                                       : PackBf16(v[n][2 * i], v[n][2 * i + 1]));
        if constexpr (!kInt8) {
          const int v_key = lane / 16 * 8 + lane % 8;
#pragma unroll
          for (int j = 0; j < kHeadDim / 16; ++j) {
            uint32_t a[4];
            LoadMatrix4Transposed(a,
                                  stage + kVOffset + StageOffset<kHeadDim, false>(true, v_key, j * 2 + lane / 8 % 2));
#pragma unroll
            for (int n = 0; n < kQ8; ++n) Mma(o[j][n], a[0], a[1], a[2], a[3], weights[n][0], weights[n][1]);
          }
        } else {
          // A lane takes kHeadDim / 8 dimensions from g * kHeadDim / 8 of keys 2 c, 2 c + 1, 2 c + 8, 2 c + 9; output
          // tile j has the (2 j)th and (2 j + 1)th of them as its rows g and g + 8.
          constexpr int kWords = kHeadDim / 32;
          uint32_t codes[4][kWords];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int v_key = 2 * c + i % 2 + i / 2 * 8;
            const char* const row = stage_at + kVOffset;
            if constexpr (kHeadDim == 128) {
              const uint4 four = LoadShared16(row + StageOffset<kHeadDim, true>(true, v_key, g));
              codes[i][0] = four.x, codes[i][1] = four.y, codes[i][2] = four.z, codes[i][3] = four.w;
            } else {
              const uint2 two = LoadShared8(row + StageOffset<kHeadDim, true>(true, v_key, g / 2) + g % 2 * 8);
              codes[i][0] = two.x, codes[i][1] = two.y;
            }
          }
#pragma unroll
          for (int j = 0; j < kHeadDim / 16; ++j) {
            const int word = j / 2;
            const uint32_t even = j % 2 == 0 ? 0x4440u : 0x6662u, odd = j % 2 == 0 ? 0x5551u : 0x7773u;
            const uint32_t a0 = SpreadInt8Half(__byte_perm(codes[0][word], codes[1][word], even));
            const uint32_t a1 = SpreadInt8Half(__byte_perm(codes[0][word], codes[1][word], odd));
            const uint32_t a2 = SpreadInt8Half(__byte_perm(codes[2][word], codes[3][word], even));
            const uint32_t a3 = SpreadInt8Half(__byte_perm(codes[2][word], codes[3][word], odd));
#pragma unroll
            for (int n = 0; n < kQ8; ++n) MmaHalf(o[j][n], a0, a1, a2, a3, weights[n][0], weights[n][1]);
          }
        }
        __syncwarp();
        advance(settle(), place);
        if (++place == kStages) place = 0;
      }
#pragma unroll
      for (int n = 0; n < kQ8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int offset = 4; offset < 32; offset *= 2) sum[n][i] += __shfl_xor_sync(0xffffffffu, sum[n][i], offset);
          const int t = n * 8 + 2 * c + i;
          if (t >= rows) continue;
          float* const row = partials + ((which * kAttentionWarps + warp) * rows + t) * kRowStride;
          if (g == 0) row[0] = top[n][i], row[1] = sum[n][i];
#pragma unroll
          for (int j = 0; j < kHeadDim / 16; ++j) {
            if constexpr (kInt8) {
              *reinterpret_cast<float2*>(row + 2 + g * (kHeadDim / 8) + 2 * j) = {o[j][n][i], o[j][n][2 + i]};
            } else {
              row[2 + j * 16 + g] = o[j][n][i], row[2 + j * 16 + g + 8] = o[j][n][2 + i];
            }
          }
        }
    }
    __syncthreads();
    if (turn + 1 < mine) load_inputs(items[turn + 1]);

    // Weights of the chains in their group, maximum and sum of the group.
    float* const weights = reinterpret_cast<float*>(smem + p.layout.weights);
    float* const heads = reinterpret_cast<float*>(smem + p.layout.group);
    static_assert(kGroups * 8 * kQ8 <= kThreads);
    if (thread < block_groups * rows) {
      const int i = thread, which = static_cast<int>((static_cast<uint32_t>(i) * item.rows_reciprocal) >> 16),
                t = i - which * rows;
      const float* const from = partials + (which * kAttentionWarps * rows + t) * kRowStride;
      float most = -INFINITY, total = 0.0f;
#pragma unroll
      for (int w = 0; w < kAttentionWarps; ++w) most = fmaxf(most, from[w * rows * kRowStride]);
      const float safe = most == -INFINITY ? 0.0f : most;
#pragma unroll
      for (int w = 0; w < kAttentionWarps; ++w) {
        const float weight = Exp2(from[w * rows * kRowStride] - safe);
        weights[i * kAttentionWarps + w] = weight;
        total = fmaf(from[w * rows * kRowStride + 1], weight, total);
      }
      heads[2 * i] = most, heads[2 * i + 1] = total;
    }
    __syncthreads();
    // Two neighbouring values of a query from the chains of a group.
    auto merge_group = [&](int which, int t, int d) {
      const float* from = partials + (which * kAttentionWarps * rows + t) * kRowStride + 2 + d;
      const float* const weight = weights + (which * rows + t) * kAttentionWarps;
      float2 v{0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < kAttentionWarps; ++w, from += rows * kRowStride) {
        const float2 chain = *reinterpret_cast<const float2*>(from);
        v.x = fmaf(chain.x, weight[w], v.x), v.y = fmaf(chain.y, weight[w], v.y);
      }
      return v;
    };
    auto store = [&](int t, int d, float2 v, float total) {
      if (kInt8) total *= kWeightUnit;
      const int position = position_of(t);
      const int64_t to =
          (item.first_row + position) * p.out_stride + (item.kv_head * group + t - position * group) * kHeadDim + d;
      *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + to) = PackBf16(v.x / total, v.y / total);
    };
    // Values of all groups, heads[2 * (group * rows + t)] their maxima and sums.
    auto finish = [&](int t, int d, auto value_of) {
      float most = -INFINITY, total = 0.0f;
#pragma unroll
      for (int s = 0; s < kGroups; ++s) most = fmaxf(most, heads[2 * (s * rows + t)]);
      const float safe = most == -INFINITY ? 0.0f : most;
      float2 v{0.0f, 0.0f};
#pragma unroll 1
      for (int s = 0; s < kGroups; ++s) {
        const float weight = Exp2(heads[2 * (s * rows + t)] - safe);
        total = fmaf(heads[2 * (s * rows + t) + 1], weight, total);
        const float2 part_value = value_of(s);
        v.x = fmaf(part_value.x, weight, v.x), v.y = fmaf(part_value.y, weight, v.y);
      }
      store(t, d, v, total);
    };
    const int pairs = rows * (kHeadDim / 2);
    Mark(p.trace, 3);
    if (block_groups == kGroups) {
#pragma unroll 1
      for (int i = thread; i < pairs; i += kThreads) {
        const int t = i / (kHeadDim / 2), d = i % (kHeadDim / 2) * 2;
        finish(t, d, [&](int s) { return merge_group(s, t, d); });
      }
      Mark(p.trace, 4);
      continue;
    }
    float* const workspace = p.workspace + static_cast<int64_t>(item.pair) * kGroups * 8 * kQ8 * kRowStride;
#pragma unroll 1
    for (int i = thread; i < block_groups * pairs; i += kThreads) {
      const int row = i / (kHeadDim / 2), d = i % (kHeadDim / 2) * 2;
      const int which = static_cast<int>((static_cast<uint32_t>(row) * item.rows_reciprocal) >> 16),
                t = row - which * rows;
      const float2 v = merge_group(which, t, d);
      float* const to = workspace + ((item.part * block_groups + which) * 8 * kQ8 + t) * kRowStride;
      __stcg(reinterpret_cast<float2*>(to + 2 + d), v);
      if (d == 0)
        __stcg(reinterpret_cast<float2*>(to), float2{heads[2 * (which * rows + t)], heads[2 * (which * rows + t) + 1]});
    }
    __shared__ uint32_t arrived;
    __syncthreads();
    uint32_t* const counter = p.counter + item.pair;
    if (thread == 0) arrived = CountArrival(counter);
    __syncthreads();
    if (arrived != static_cast<uint32_t>(p.blocks_per_tile) - 1) continue;
    if (thread == 0) *counter = 0;
    // Maxima and sums of all groups to the shared memory of the partials, whose use is over, while the values travel.
    float* const all_heads = partials;
    if (thread < kGroups * rows) {
      const int i = thread, s = static_cast<int>((static_cast<uint32_t>(i) * item.rows_reciprocal) >> 16),
                t = i - s * rows;
      const float2 head = __ldcg(reinterpret_cast<const float2*>(workspace + (s * 8 * kQ8 + t) * kRowStride));
      all_heads[2 * i] = head.x, all_heads[2 * i + 1] = head.y;
    }
    bool ready = false;
#pragma unroll 1
    for (int first_pair = 0; first_pair < pairs; first_pair += kThreads) {
      const int i = min(first_pair + thread, pairs - 1), t = i / (kHeadDim / 2), d = i % (kHeadDim / 2) * 2;
      float2 v[kGroups];
#pragma unroll
      for (int s = 0; s < kGroups; ++s)
        v[s] = __ldcg(reinterpret_cast<const float2*>(workspace + (s * 8 * kQ8 + t) * kRowStride + 2 + d));
      if (!ready) __syncthreads();
      ready = true;
      float most = -INFINITY, total = 0.0f;
#pragma unroll
      for (int s = 0; s < kGroups; ++s) most = fmaxf(most, all_heads[2 * (s * rows + t)]);
      const float safe = most == -INFINITY ? 0.0f : most;
      float2 value{0.0f, 0.0f};
#pragma unroll
      for (int s = 0; s < kGroups; ++s) {
        const float weight = Exp2(all_heads[2 * (s * rows + t)] - safe);
        total = fmaf(all_heads[2 * (s * rows + t) + 1], weight, total);
        value.x = fmaf(v[s].x, weight, value.x), value.y = fmaf(v[s].y, weight, value.y);
      }
      if (first_pair + thread < pairs) store(t, d, value, total);
    }
    Mark(p.trace, 4);
  }
}

}  // namespace voxrt::cuda_kernels
