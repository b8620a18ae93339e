// Device weight units: layout and dequantization. w' = bf16(fma(q - 8, scale, zero)) for 4 bit and bf16(q * scale) for
// 8 bit, exactly the weights of docs/model.md 12, made in registers right before the MMA.
//
// Layout of a unit (16 rows x 128 inputs), lane t = 4 g + c of the m16n8k16 A fragment:
//   4 bit   [half: rows g / g + 8][lane][4 words]; word j, nibble i: input 32 j + 2 c + {0, 8, 16, 24, 1, 9, 17, 25}[i]
//           (the tile_packed_to_4d word), then scales [group][16 rows](scale, zero)
//   8 bit   [k32 j][lane][16 bytes]: two k16 steps, each a0 a1 a2 a3 of two bytes; then scales [group][16 rows]
//   bf16    [k16 step][lane][a0 a1 a2 a3]
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace voxrt::cuda_kernels {

__device__ __forceinline__ uint32_t Broadcast(uint32_t half_word) { return __byte_perm(half_word, 0, 0x1010); }
__device__ __forceinline__ uint32_t BroadcastHigh(uint32_t word) { return __byte_perm(word, 0, 0x3232); }

// (word >> 4 i) & 0x000f000f | 0x43004300 is the pair 128 + q in bf16; minus 136 is q - 8, exact.
__device__ __forceinline__ uint32_t DequantInt4(uint32_t shifted, uint32_t scale, uint32_t zero) {
  return FmaBf162(SubBf162(AndOr(shifted, 0x000f000fu, 0x43004300u), 0x43084308u), scale, zero);
}

// Bytes b0, b1 (signed) in the low and high half-word. 0x4300 | low 7 bits is 128 + low; 0x4300 | sign bit is 128 or
// 256.
__device__ __forceinline__ uint32_t SpreadInt8(uint32_t spread) {
  return SubBf162(AndOr(spread, 0x007f007fu, 0x43004300u), AndOr(spread, 0x00800080u, 0x43004300u));
}
// The same in fp16, which has room for all eight bits: 0x6400 | (code + 128) is 1152 + code.
__device__ __forceinline__ uint32_t SpreadInt8Half(uint32_t spread) {
  return SubHalf2(AndXor(spread, 0x00ff00ffu, 0x64806480u), 0x64806480u);
}
__device__ __forceinline__ uint32_t DequantInt8(uint32_t spread, uint32_t scale) {
  return MulBf162(SpreadInt8(spread), scale);
}

// Calls use(k32, a[2][4]) with the A fragments of the two k16 steps of each 32 inputs of the unit at `unit` (shared
// memory). 4 bit: `loaded` is called once everything of the unit is in registers, so that its place may be refilled;
// other formats call it at the end.
template <WeightFormat kFormat, typename Loaded, typename Use>
__device__ __forceinline__ void ForEachFragment(const char* unit, int lane, Loaded&& loaded, Use&& use) {
  const int g = lane >> 2;
  if constexpr (kFormat == WeightFormat::kInt4G128 || kFormat == WeightFormat::kInt4G32) {
    const uint4 low4 = LoadShared16(unit + lane * 16);
    const uint4 high4 = LoadShared16(unit + 512 + lane * 16);
    const uint32_t low[4] = {low4.x, low4.y, low4.z, low4.w};
    const uint32_t high[4] = {high4.x, high4.y, high4.z, high4.w};
    uint32_t pair_low = LoadShared4(unit + 1024 + g * 4);
    uint32_t pair_high = LoadShared4(unit + 1024 + (g + 8) * 4);
    uint32_t scale_low = Broadcast(pair_low), zero_low = BroadcastHigh(pair_low);
    uint32_t scale_high = Broadcast(pair_high), zero_high = BroadcastHigh(pair_high);
    if constexpr (kFormat == WeightFormat::kInt4G128) loaded();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kFormat == WeightFormat::kInt4G32) {
        if (j > 0) {
          pair_low = LoadShared4(unit + 1024 + j * 64 + g * 4);
          pair_high = LoadShared4(unit + 1024 + j * 64 + (g + 8) * 4);
          scale_low = Broadcast(pair_low), zero_low = BroadcastHigh(pair_low);
          scale_high = Broadcast(pair_high), zero_high = BroadcastHigh(pair_high);
        }
      }
      uint32_t a[2][4];
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        a[step][0] = DequantInt4(low[j] >> (8 * step), scale_low, zero_low);
        a[step][1] = DequantInt4(high[j] >> (8 * step), scale_high, zero_high);
        a[step][2] = DequantInt4(low[j] >> (8 * step + 4), scale_low, zero_low);
        a[step][3] = DequantInt4(high[j] >> (8 * step + 4), scale_high, zero_high);
      }
      use(j, a);
    }
    if constexpr (kFormat == WeightFormat::kInt4G32) loaded();
  } else if constexpr (kFormat == WeightFormat::kInt8Row || kFormat == WeightFormat::kInt8G32) {
    uint32_t scale_low = Broadcast(LoadShared2(unit + 2048 + g * 2));
    uint32_t scale_high = Broadcast(LoadShared2(unit + 2048 + (g + 8) * 2));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint4 codes = LoadShared16(unit + j * 512 + lane * 16);
      const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
      if constexpr (kFormat == WeightFormat::kInt8G32) {
        if (j > 0) {
          scale_low = Broadcast(LoadShared2(unit + 2048 + j * 32 + g * 2));
          scale_high = Broadcast(LoadShared2(unit + 2048 + j * 32 + (g + 8) * 2));
        }
      }
      uint32_t a[2][4];
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        a[step][0] = DequantInt8(__byte_perm(word[2 * step], 0, 0x4140), scale_low);
        a[step][1] = DequantInt8(__byte_perm(word[2 * step], 0, 0x4342), scale_high);
        a[step][2] = DequantInt8(__byte_perm(word[2 * step + 1], 0, 0x4140), scale_low);
        a[step][3] = DequantInt8(__byte_perm(word[2 * step + 1], 0, 0x4342), scale_high);
      }
      use(j, a);
    }
    loaded();
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t a[2][4];
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 words = LoadShared16(unit + (2 * j + step) * 512 + lane * 16);
        a[step][0] = words.x, a[step][1] = words.y, a[step][2] = words.z, a[step][3] = words.w;
      }
      use(j, a);
    }
    loaded();
  }
}

// One weight of a device matrix, as fp32: for the token table.
__device__ __forceinline__ float WeightAt(const WeightRef& w, int row, int col) {
  const uint8_t* unit = w.data + UnitAt(row / kTileRows, col / kUnitCols, w.units) * UnitBytes(w.format);
  const int r = row % kTileRows, k = col % kUnitCols;
  const int g = r % 8, upper = r / 8, in16 = k % 16;
  const int lane = 4 * g + (in16 % 8) / 2;
  const int odd = k % 2, second = in16 / 8;  // second: registers a2, a3
  switch (w.format) {
    case WeightFormat::kInt4G128:
    case WeightFormat::kInt4G32: {
      const uint32_t word = reinterpret_cast<const uint32_t*>(unit)[(upper * 32 + lane) * 4 + k / 32];
      const int nibble = (k % 32) / 8 + 4 * odd;
      const int group = w.format == WeightFormat::kInt4G32 ? k / 32 : 0;
      const auto* pair = reinterpret_cast<const __nv_bfloat16*>(unit + 1024) + (group * 16 + r) * 2;
      const float q = static_cast<float>(static_cast<int>((word >> (4 * nibble)) & 15u) - 8);
      return __bfloat162float(__hfma(__float2bfloat16_rn(q), pair[0], pair[1]));
    }
    case WeightFormat::kInt8Row:
    case WeightFormat::kInt8G32: {
      const int at = (k / 32) * 512 + lane * 16 + ((k % 32) / 16) * 8 + second * 4 + upper * 2 + odd;
      const int group = w.format == WeightFormat::kInt8G32 ? k / 32 : 0;
      const auto scale = reinterpret_cast<const __nv_bfloat16*>(unit + 2048)[group * 16 + r];
      return RoundBf16(static_cast<float>(static_cast<int8_t>(unit[at])) * __bfloat162float(scale));
    }
    case WeightFormat::kBf16:
      return __bfloat162float(
          reinterpret_cast<const __nv_bfloat16*>(unit)[((k / 16) * 32 + lane) * 8 + second * 4 + upper * 2 + odd]);
  }
  return 0.0f;
}

}  // namespace voxrt::cuda_kernels
