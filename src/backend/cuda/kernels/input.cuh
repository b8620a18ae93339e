// How kernels read their input rows: plain, normalised (RmsNorm with the canonical order of sums), or as three taps of
// a causal convolution. One order of sums for every row count: sixteen partial sums per row, lanes strided, added in
// order.
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace voxrt::cuda_kernels {

inline constexpr int kNormParts = 16;

__host__ __device__ constexpr int NormPartCols(int cols) {
  return ((cols + kNormParts * 4 - 1) / (kNormParts * 4)) * 4;
}

__device__ __forceinline__ float WarpSum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

__device__ __forceinline__ float SquareSum(float4 v, float sum) {
  sum = fmaf(v.x, v.x, sum);
  sum = fmaf(v.y, v.y, sum);
  sum = fmaf(v.z, v.z, sum);
  return fmaf(v.w, v.w, sum);
}

__device__ __forceinline__ float NormScale(const float* parts, int cols, float epsilon) {
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kNormParts; ++i) total += parts[i];
  return 1.0f / sqrtf(total / static_cast<float>(cols) + epsilon);
}

__device__ __forceinline__ float4 Mul4(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ __forceinline__ float4 Scale4(float4 a, float s) { return {a.x * s, a.y * s, a.z * s, a.w * s}; }

// Four inputs of a row of fp32 from col; those beyond cols are zero and do not change a sum.
__device__ __forceinline__ float4 RowAt4(const InputRef& in, const float* row, int col, int cols) {
  if (in.aligned) return __ldcg(reinterpret_cast<const float4*>(row + col));
  float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
  if (col < cols) v.x = __ldcg(row + col);
  if (col + 1 < cols) v.y = __ldcg(row + col + 1);
  if (col + 2 < cols) v.z = __ldcg(row + col + 2);
  if (col + 3 < cols) v.w = __ldcg(row + col + 3);
  return v;
}

__device__ __forceinline__ int64_t InputRow(const InputRef& in, int row) { return in.row_map ? in.row_map[row] : row; }

// Element `col` of input row `row` of a plain or convolution input.
__device__ __forceinline__ float InputAt(const InputRef& in, int row, int col) {
  int64_t at;
  if (in.kind == InputKind::kConv) {
    const int tail_rows = 3 - in.conv_stride;
    const int tap = col / in.conv_channels, channel = col % in.conv_channels;
    const int frame = row * in.conv_stride + tap - tail_rows;  // in the frames of the call
    const int plan_row = (row * in.conv_stride) / in.frames_per_row;
    const int first = in.row_begin[plan_row] * in.frames_per_row;  // first frame of the group
    if (frame < first) {
      const int tail_row = frame - first + tail_rows;
      return __ldcg(in.tail + (static_cast<int64_t>(in.row_slot[plan_row]) * tail_rows + tail_row) * in.conv_channels +
                    channel);
    }
    at = frame * in.stride + channel;
  } else {
    at = InputRow(in, row) * in.stride + col;
  }
  if (in.element == Element::kF32) return __ldcg(static_cast<const float*>(in.data) + at);
  const unsigned short bits = __ldcg(static_cast<const unsigned short*>(in.data) + at);
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// Eight consecutive inputs from col as bf16, of an aligned input.
__device__ __forceinline__ uint4 InputAt8(const InputRef& in, int row, int col) {
  const char* data = static_cast<const char*>(in.data);
  int64_t at;
  bool f32 = in.element == Element::kF32;
  if (in.kind == InputKind::kConv) {
    const int tail_rows = 3 - in.conv_stride;
    const int tap = col / in.conv_channels, channel = col % in.conv_channels;
    const int frame = row * in.conv_stride + tap - tail_rows;
    const int plan_row = (row * in.conv_stride) / in.frames_per_row;
    const int first = in.row_begin[plan_row] * in.frames_per_row;
    if (frame < first) {
      const int tail_row = frame - first + tail_rows;
      data = reinterpret_cast<const char*>(in.tail);
      f32 = true;
      at = (static_cast<int64_t>(in.row_slot[plan_row]) * tail_rows + tail_row) * in.conv_channels + channel;
    } else {
      at = frame * in.stride + channel;
    }
  } else {
    at = InputRow(in, row) * in.stride + col;
  }
  if (!f32) return __ldcg(reinterpret_cast<const uint4*>(data + at * 2));
  const float4 a = __ldcg(reinterpret_cast<const float4*>(data + at * 4));
  const float4 b = __ldcg(reinterpret_cast<const float4*>(data + at * 4) + 1);
  return {PackBf16(a.x, a.y), PackBf16(a.z, a.w), PackBf16(b.x, b.y), PackBf16(b.z, b.w)};
}

// New tail of the session whose group begins at plan row `row`: run by the last block that has read the group's input,
// so that no block still needs the old one.
__device__ __forceinline__ void StoreConvTail(const InputRef& in, int row, int threads, int thread) {
  const int tail_rows = 3 - in.conv_stride;
  const int first = row * in.frames_per_row, end = (row + in.row_count[row]) * in.frames_per_row;
  float* tail = in.tail + static_cast<int64_t>(in.row_slot[row]) * tail_rows * in.conv_channels;
  for (int channel = thread; channel < in.conv_channels; channel += threads) {
    for (int i = 0; i < tail_rows; ++i) {  // rising: a call shorter than the tail shifts it
      const int frame = end - tail_rows + i;
      const int64_t at = frame * in.stride + channel;
      float value;
      if (frame < first) {
        value = tail[(frame - first + tail_rows) * in.conv_channels + channel];
      } else if (in.element == Element::kF32) {
        value = __ldcg(static_cast<const float*>(in.data) + at);
      } else {
        value = __uint_as_float(static_cast<uint32_t>(__ldcg(static_cast<const unsigned short*>(in.data) + at)) << 16);
      }
      tail[i * in.conv_channels + channel] = value;
    }
  }
}

}  // namespace voxrt::cuda_kernels
