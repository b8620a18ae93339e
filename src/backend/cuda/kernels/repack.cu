// Stored weights -> device units (weights.cuh). One thread per (source row, unit, 32-bit piece); codes move, values
// never change. Runs once per weight at load, on rows that were just uploaded; bound by the upload.
#include <cuda_fp16.h>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/weights.cuh"

namespace voxrt::cuda_kernels {
namespace {

__device__ __forceinline__ unsigned short FloatBits(const RepackParams& p, int64_t row, int col) {
  if (p.conv_channels > 0) col = col % p.conv_channels * 3 + col / p.conv_channels;
  const int64_t at = row * p.cols + col;
  if (p.source == 1) return static_cast<const unsigned short*>(p.data)[at];
  const float value =
      p.source == 0 ? static_cast<const float*>(p.data)[at] : __half2float(static_cast<const __half*>(p.data)[at]);
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

// Code 0..15 of a 4-bit weight in canonical or tile-packed order.
__device__ __forceinline__ uint32_t Int4Code(const RepackParams& p, int64_t row, int col) {
  if (p.source == 3) {
    const uint8_t byte = static_cast<const uint8_t*>(p.data)[row * (p.cols / 2) + col / 32 * 16 + col % 16];
    return col % 32 < 16 ? byte & 15u : byte >> 4;
  }
  const int in_block = col % 128, in_word = in_block % 32, pair = in_word % 8;
  const int64_t at = (((row / 8) * (p.cols / 128) + col / 128) * 32 + (row % 8) * 4 + pair / 2) * 4 + in_block / 32;
  return static_cast<const uint32_t*>(p.data)[at] >> (4 * (in_word / 8 + (pair % 2) * 4)) & 15u;
}

__global__ void __launch_bounds__(256) RepackKernel(const __grid_constant__ RepackParams p) {
  const int pieces = p.weight.format == WeightFormat::kInt4G128 || p.weight.format == WeightFormat::kInt4G32 ? 16 : 64;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const int piece = static_cast<int>(id % pieces), unit = static_cast<int>(id / pieces % p.weight.units);
  const int64_t row = id / pieces / p.weight.units;
  if (row >= p.rows) return;
  const int64_t source_row = p.first_row + row;  // of the whole source
  const int64_t device_row =
      p.interleave ? source_row / 8 * 16 + source_row % 8 + (p.interleave == 2 ? 8 : 0) : p.row_base + source_row;
  const int r = static_cast<int>(device_row % kTileRows), g = r % 8, upper = r / 8;
  uint8_t* const out = p.out + UnitAt(device_row / kTileRows, unit, p.weight.units) * UnitBytes(p.weight.format);
  const int col0 = unit * kUnitCols;
  auto group_of = [&](int col) { return p.group == 0 ? 0 : col / p.group; };
  const int groups = p.group == 0 ? 1 : p.cols / p.group;
  if (pieces == 16) {
    const int c = piece % 4, j = piece / 4;
    uint32_t word = 0;
    constexpr int kOffset[8] = {0, 8, 16, 24, 1, 9, 17, 25};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int col = col0 + 32 * j + 2 * c + kOffset[i];
      if (col < p.cols) word |= Int4Code(p, row, col) << (4 * i);
    }
    reinterpret_cast<uint32_t*>(out)[(upper * 32 + 4 * g + c) * 4 + j] = word;
    const int scales = p.weight.format == WeightFormat::kInt4G32 ? 4 : 1;
    if (piece < scales) {
      const int col = col0 + piece * 32;
      uint32_t pair = 0;
      if (col < p.cols) {
        pair = p.source == 4 ? reinterpret_cast<const uint32_t*>(
                                   p.scale)[static_cast<int64_t>(group_of(col)) * p.total_rows + source_row]
                             : p.scale[source_row * groups + group_of(col)];
      }
      reinterpret_cast<uint32_t*>(out + 1024)[piece * 16 + r] = pair;
    }
    return;
  }
  const int c = piece % 4, second = piece / 4 % 2, step = piece / 8;  // step: k16 of 8
  const int col = col0 + step * 16 + second * 8 + 2 * c;
  if (p.weight.format == WeightFormat::kBf16) {
    uint32_t word = 0;
    if (col < p.cols) word = FloatBits(p, row, col);
    if (col + 1 < p.cols) word |= static_cast<uint32_t>(FloatBits(p, row, col + 1)) << 16;
    reinterpret_cast<uint32_t*>(out)[(step * 32 + 4 * g + c) * 4 + second * 2 + upper] = word;
    return;
  }
  const auto* codes = static_cast<const int8_t*>(p.data) + row * p.cols;
  uint32_t both = 0;
  if (col < p.cols) both = static_cast<uint8_t>(codes[col]);
  if (col + 1 < p.cols) both |= static_cast<uint32_t>(static_cast<uint8_t>(codes[col + 1])) << 8;
  *reinterpret_cast<unsigned short*>(out + (step / 2) * 512 + (4 * g + c) * 16 + (step % 2) * 8 + second * 4 +
                                     upper * 2) = static_cast<unsigned short>(both);
  const int scales = p.weight.format == WeightFormat::kInt8G32 ? 4 : 1;
  if (piece < scales) {
    const int at = col0 + piece * 32;
    reinterpret_cast<unsigned short*>(out + 2048)[piece * 16 + r] =
        at < p.cols ? p.scale[source_row * groups + group_of(at)] : 0;
  }
}

}  // namespace

cudaError_t LaunchRepack(const RepackParams& p, const LaunchContext& context) {
  const int pieces = p.weight.format == WeightFormat::kInt4G128 || p.weight.format == WeightFormat::kInt4G32 ? 16 : 64;
  const int64_t threads = static_cast<int64_t>(p.rows) * p.weight.units * pieces;
  return Launch(RepackKernel, p, dim3(static_cast<unsigned>((threads + 255) / 256)), 256, 0, context);
}

}  // namespace voxrt::cuda_kernels
