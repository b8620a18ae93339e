// Everything that is no product: input rows (norm, convolution taps, conversion), token embedding, rotary phases with
// K/V append, append of long calls, arg-max of stored logits, element-wise operations, cloning of a session's pages.
// All bound by latency.
#include "backend/cuda/kernels/input.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/output.cuh"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {
namespace {

inline constexpr int kThreads = 256;

__device__ __forceinline__ void StoreElement(void* data, Element element, int64_t at, float value) {
  if (element == Element::kF32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
  }
}
__device__ __forceinline__ float LoadElement(const void* data, Element element, int64_t at) {
  if (element == Element::kF32) return __ldcg(static_cast<const float*>(data) + at);
  return __uint_as_float(static_cast<uint32_t>(__ldcg(static_cast<const unsigned short*>(data) + at)) << 16);
}

// A norm of aligned rows that stay in registers, to bf16: one block per row, part = warp (input.cuh). Apart from the
// rest of IngestKernel, because batches run it twice a layer and less code is less time.
inline constexpr int kIngestThreads = kNormParts * 32, kNormSteps = 2;
bool FitsNorm(const IngestParams& p) {
  return p.input.kind == InputKind::kNorm && p.input.aligned && p.out_stride % 8 == 0 &&
         p.out_element == Element::kBf16 && p.padded_cols == p.cols && NormPartCols(p.cols) <= kNormSteps * 128;
}
__global__ void __launch_bounds__(kIngestThreads) NormKernel(const __grid_constant__ IngestParams p) {
  __shared__ float parts[kNormParts];
  const InputRef& in = p.input;
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  LaunchDependents();
  Mark(p.trace, 0);
  const int part_cols = NormPartCols(p.cols), begin = warp * part_cols + lane * 4,
            end = min((warp + 1) * part_cols, p.cols);
  const float* const scales =
      in.scales && row < p.rows ? in.scales + static_cast<int64_t>(in.scale_row[row]) * p.cols : nullptr;
  float4 gain[kNormSteps], scale4[kNormSteps], x[kNormSteps];
#pragma unroll
  for (int i = 0; i < kNormSteps; ++i) {
    const int col = begin + i * 128;
    gain[i] = scale4[i] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (col < end) gain[i] = __ldg(reinterpret_cast<const float4*>(in.gain + col));
    if (col < end && scales) scale4[i] = __ldg(reinterpret_cast<const float4*>(scales + col));
  }
  WaitForPrevious();
  Mark(p.trace, 1);
  Mark(p.trace, 2);
  if (row >= p.rows) return;
  const float* const source = static_cast<const float*>(in.data) + InputRow(in, row) * in.stride;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kNormSteps; ++i) {
    x[i] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (begin + i * 128 < end) x[i] = __ldcg(reinterpret_cast<const float4*>(source + begin + i * 128));
  }
#pragma unroll
  for (int i = 0; i < kNormSteps; ++i) sum = SquareSum(x[i], sum);
  sum = WarpSum(sum);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  const float scale = NormScale(parts, p.cols, in.epsilon);
  auto* const out = static_cast<__nv_bfloat16*>(p.out) + row * p.out_stride;
#pragma unroll
  for (int i = 0; i < kNormSteps; ++i) {
    const int col = begin + i * 128;
    if (col >= end) continue;
    float4 v = Mul4(Scale4(x[i], scale), gain[i]);
    if (scales) v = Mul4(v, scale4[i]);
    *reinterpret_cast<uint2*>(out + col) = {PackBf16(v.x, v.y), PackBf16(v.z, v.w)};
  }
  Mark(p.trace, 3);
  Mark(p.trace, 4);
}

// One block per row. The sums of a norm are those of input.cuh: part = warp.

__global__ void __launch_bounds__(kIngestThreads) IngestKernel(const __grid_constant__ IngestParams p) {
  __shared__ float parts[kNormParts];
  __shared__ uint32_t arrived;
  const InputRef& in = p.input;
  const int row = blockIdx.x, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  LaunchDependents();
  Mark(p.trace, 0);
  const bool norm = in.kind == InputKind::kNorm;
  const bool vectors = in.aligned && p.out_stride % 8 == 0 && p.out_element == Element::kBf16;
  WaitForPrevious();
  Mark(p.trace, 1);
  Mark(p.trace, 2);
  if (row >= p.rows) return;
  const int64_t out = row * p.out_stride;
  if (norm) {
    const float* const source = static_cast<const float*>(in.data) + InputRow(in, row) * in.stride;
    const int part_cols = NormPartCols(p.cols), begin = warp * part_cols, end = min(begin + part_cols, p.cols);
    float sum = 0.0f;
    for (int col = begin + lane * 4; col < end; col += 128) sum = SquareSum(RowAt4(in, source, col, p.cols), sum);
    sum = WarpSum(sum);
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    const float scale = NormScale(parts, p.cols, in.epsilon);
    const float* const scales = in.scales ? in.scales + static_cast<int64_t>(in.scale_row[row]) * p.cols : nullptr;
    for (int col = thread; col < p.cols; col += kIngestThreads) {
      float value = __ldcg(source + col) * scale * __ldg(in.gain + col);
      if (scales) value *= __ldg(scales + col);
      StoreElement(p.out, p.out_element, out + col, value);
    }
  } else if (vectors) {
    for (int col = thread * 8; col < p.cols; col += kIngestThreads * 8)
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.out) + out + col) = InputAt8(in, row, col);
  } else {
    for (int col = thread; col < p.cols; col += kIngestThreads)
      StoreElement(p.out, p.out_element, out + col, InputAt(in, row, col));
  }
  for (int col = p.cols + thread; col < p.padded_cols; col += kIngestThreads)
    StoreElement(p.out, p.out_element, out + col, 0.0f);
  Mark(p.trace, 3);
  Mark(p.trace, 4);
  if (in.kind == InputKind::kConv) {
    // One counter for each session: its last block stores its tail.
    const int group = in.row_begin[row * in.conv_stride / in.frames_per_row];
    const int blocks = in.row_count[group] * in.frames_per_row / in.conv_stride;
    __syncthreads();
    if (thread == 0) arrived = atomicAdd(in.counter + group, 1u);
    __syncthreads();
    if (arrived == static_cast<uint32_t>(blocks) - 1) {
      StoreConvTail(in, group, kIngestThreads, thread);
      if (thread == 0) in.counter[group] = 0;
    }
  }
}

__global__ void __launch_bounds__(kIngestThreads) EmbedKernel(const __grid_constant__ EmbedParams p) {
  const int blocks_per_row = (p.table.cols + kThreads - 1) / kThreads;
  const int row = blockIdx.x / blocks_per_row, col = blockIdx.x % blocks_per_row * kThreads + threadIdx.x;
  LaunchDependents();
  WaitForPrevious();
  if (row >= p.rows || col >= p.table.cols) return;
  int token = p.token[row];
  if (token < 0) token = __ldcg(p.slot_token + p.row_slot[row]);
  if (token < 0 || token >= p.table.rows) token = 0;
  float value = WeightAt(p.table, token, col);
  if (p.audio) value += __ldcg(p.audio + p.audio_row[row] * p.audio_stride + col);
  p.out[row * p.out_stride + col] = value;
}

// One block per (row, head); one thread per rotary pair.
__global__ void RopeKernel(const __grid_constant__ RopeParams p) {
  __shared__ float warp_max[4];
  const int row = blockIdx.y, head = blockIdx.x, i = threadIdx.x;
  const int head_dim = p.cache.head_dim, kv_heads = p.cache.kv_heads;
  LaunchDependents();
  WaitForPrevious();
  auto* const data = static_cast<__nv_bfloat16*>(p.qkv) + row * p.stride + head * head_dim;
  const bool is_v = head >= p.heads + kv_heads;
  const int d0 = p.half_pairs && !is_v ? i : 2 * i, d1 = p.half_pairs && !is_v ? i + head_dim / 2 : 2 * i + 1;
  float x0 = LoadElement(data, Element::kBf16, d0), x1 = LoadElement(data, Element::kBf16, d1);
  if (!is_v) {
    const float c = p.cos[static_cast<int64_t>(row) * (head_dim / 2) + i],
                s = p.sin[static_cast<int64_t>(row) * (head_dim / 2) + i];
    Rotate(x0, x1, c, s);
    data[d0] = __float2bfloat16_rn(x0);
    data[d1] = __float2bfloat16_rn(x1);
  }
  if (head < p.heads) return;
  x0 = RoundBf16(x0), x1 = RoundBf16(x1);
  const int kv = head - p.heads;  // k heads, then v heads
  if (!p.cache.scale && !p.own_scale) {
    if (!p.store_cache) return;
    const int64_t at =
        (CacheToken(p.cache, p.row_slot[row], p.row_index[row]) + static_cast<int64_t>(kv) * kPageTokens) * head_dim;
    static_cast<__nv_bfloat16*>(p.cache.data)[at + d0] = __float2bfloat16_rn(x0);
    static_cast<__nv_bfloat16*>(p.cache.data)[at + d1] = __float2bfloat16_rn(x1);
    return;
  }
  float top = fmaxf(fabsf(x0), fabsf(x1));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
  if (i % 32 == 0) warp_max[i / 32] = top;
  __syncthreads();
  for (int w = 0; w < (head_dim / 2 + 31) / 32; ++w) top = fmaxf(top, warp_max[w]);
  const KvScale kv_scale(top);
  const float scale = kv_scale.scale;
  const auto q0 = static_cast<int8_t>(kv_scale.Code(x0)), q1 = static_cast<int8_t>(kv_scale.Code(x1));
  int8_t* codes;
  if (p.store_cache) {
    const int64_t token =
        CacheToken(p.cache, p.row_slot[row], p.row_index[row]) + static_cast<int64_t>(kv) * kPageTokens;
    codes = static_cast<int8_t*>(p.cache.data) + token * head_dim;
    if (i == 0) p.cache.scale[token] = scale;
  } else {
    const int64_t at = static_cast<int64_t>(row) * 2 * kv_heads + kv;
    codes = p.own_codes + at * head_dim;
    if (i == 0) p.own_scale[at] = scale;
  }
  codes[d0] = q0;
  codes[d1] = q1;
}

// One block per (row, K or V head): rows that are still inside the ring at the end of the call.
__global__ void AppendKernel(const __grid_constant__ AppendParams p) {
  const int row = blockIdx.y, kv = blockIdx.x, kv_heads = p.cache.kv_heads, head_dim = p.cache.head_dim;
  LaunchDependents();
  WaitForPrevious();
  const int begin = p.row_begin[row], end = begin + p.row_count[row];
  if (row < end - p.cache.capacity) return;
  const int64_t token = CacheToken(p.cache, p.row_slot[row], p.row_index[row]) + static_cast<int64_t>(kv) * kPageTokens;
  if (p.own_codes) {
    const int64_t at = static_cast<int64_t>(row) * 2 * kv_heads + kv;
    for (int d = threadIdx.x; d < head_dim; d += blockDim.x)
      static_cast<int8_t*>(p.cache.data)[token * head_dim + d] = p.own_codes[at * head_dim + d];
    if (threadIdx.x == 0) p.cache.scale[token] = p.own_scale[at];
  } else {
    const auto* source = static_cast<const unsigned short*>(p.qkv) + row * p.stride + (p.heads + kv) * head_dim;
    for (int d = threadIdx.x; d < head_dim; d += blockDim.x)
      static_cast<unsigned short*>(p.cache.data)[token * head_dim + d] = __ldcg(source + d);
  }
}

__global__ void __launch_bounds__(kThreads) ElementwiseKernel(const __grid_constant__ ElementwiseParams p) {
  const int row = blockIdx.y, col = blockIdx.x * kThreads + threadIdx.x;
  LaunchDependents();
  WaitForPrevious();
  if (col >= p.cols) return;
  float value = LoadElement(p.x, p.x_element, row * p.x_stride + col);
  if (p.operation == 0) value = GeluExact(value);
  if (p.operation == 1) value += LoadElement(p.out, p.out_element, row * p.out_stride + col);
  StoreElement(p.out, p.out_element, row * p.out_stride + col, value);
}

__global__ void __launch_bounds__(kThreads) ArgMaxKernel(const __grid_constant__ ArgMaxParams p) {
  __shared__ unsigned long long best;
  const int row = blockIdx.x;
  LaunchDependents();
  WaitForPrevious();
  if (threadIdx.x == 0) best = 0;
  __syncthreads();
  unsigned long long mine = 0;
  for (int col = threadIdx.x; col < p.cols; col += kThreads)
    mine = max(mine, ArgMaxKey(__ldcg(p.logits + row * p.stride + col), col));
  atomicMax(&best, mine);
  __syncthreads();
  if (threadIdx.x == 0) {
    const int token = static_cast<int>(~static_cast<uint32_t>(best));
    p.token[row] = token;
    const int slot = p.row_slot[p.head_row[row]];
    if (row + 1 == p.rows || p.row_slot[p.head_row[row + 1]] != slot) p.slot_token[slot] = token;
  }
}

// One block per (page of the slot, layer): K and V of all heads.
__global__ void __launch_bounds__(kThreads) CloneKernel(const __grid_constant__ CloneParams p) {
  const int page = blockIdx.x, layer = blockIdx.y;
  LaunchDependents();
  WaitForPrevious();
  const int64_t from = p.cache.pages[static_cast<int64_t>(p.from) * p.cache.pages_per_slot + page];
  const int64_t to = p.cache.pages[static_cast<int64_t>(p.to) * p.cache.pages_per_slot + page];
  const int64_t tokens = 2LL * p.cache.kv_heads * kPageTokens, bytes = tokens * p.cache.head_dim * p.element_bytes;
  char* const data = static_cast<char*>(p.cache.data) + layer * p.layer_bytes;
  for (int64_t i = threadIdx.x; i < bytes / 16; i += kThreads)
    reinterpret_cast<uint4*>(data + to * bytes)[i] = reinterpret_cast<const uint4*>(data + from * bytes)[i];
  if (p.cache.scale) {
    float* const scale = p.cache.scale + layer * p.layer_scales;
    for (int64_t i = threadIdx.x; i < tokens; i += kThreads) scale[to * tokens + i] = scale[from * tokens + i];
  }
}

}  // namespace

// With a place on the SMs: one block per SM (shapes.h).
cudaError_t LaunchIngest(const IngestParams& p, const LaunchContext& context) {
  const int blocks = p.shared_bytes > 0 ? std::max(p.rows, context.device.sm_count) : p.rows;
  return Launch(FitsNorm(p) ? NormKernel : IngestKernel, p, dim3(static_cast<unsigned>(blocks)), kIngestThreads,
                p.shared_bytes, context);
}
cudaError_t LaunchEmbed(const EmbedParams& p, const LaunchContext& context) {
  const int needed = (p.table.cols + kThreads - 1) / kThreads * p.rows;
  const int blocks = p.shared_bytes > 0 ? std::max(needed, context.device.sm_count) : needed;
  return Launch(EmbedKernel, p, dim3(static_cast<unsigned>(blocks)), kThreads, p.shared_bytes, context);
}
cudaError_t LaunchRope(const RopeParams& p, const LaunchContext& context) {
  return Launch(RopeKernel, p,
                dim3(static_cast<unsigned>(p.heads + 2 * p.cache.kv_heads), static_cast<unsigned>(p.rows)),
                p.cache.head_dim / 2, 0, context);
}
cudaError_t LaunchAppend(const AppendParams& p, const LaunchContext& context) {
  return Launch(AppendKernel, p, dim3(static_cast<unsigned>(2 * p.cache.kv_heads), static_cast<unsigned>(p.rows)), 64,
                0, context);
}
cudaError_t LaunchElementwise(const ElementwiseParams& p, const LaunchContext& context) {
  return Launch(ElementwiseKernel, p,
                dim3(static_cast<unsigned>((p.cols + kThreads - 1) / kThreads), static_cast<unsigned>(p.rows)),
                kThreads, 0, context);
}
cudaError_t LaunchArgMax(const ArgMaxParams& p, const LaunchContext& context) {
  return Launch(ArgMaxKernel, p, dim3(static_cast<unsigned>(p.rows)), kThreads, 0, context);
}
cudaError_t LaunchClone(const CloneParams& p, const LaunchContext& context) {
  return Launch(CloneKernel, p, dim3(static_cast<unsigned>(p.pages), static_cast<unsigned>(p.layers)), kThreads, 0,
                context);
}

}  // namespace voxrt::cuda_kernels
