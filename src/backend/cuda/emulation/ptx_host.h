// The instructions of ptx.cuh and the built-in functions of CUDA C++ on the emulator (emulator.h). Included by ptx.cuh
// alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cuda/emulation/emulator.h"

#undef __device__
#undef __host__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __host__
#define __global__ inline
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define VOXRT_DYNAMIC_SHARED(name) char* const name = cuda_emulation::SharedMemory()

namespace voxrt::cuda_kernels {

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
void __stcg(T* p, T value) {
  *p = value;
}
template <typename T>
T atomicAdd(T* p, T value) {
  const T old = *p;
  *p += value;
  return old;
}
template <typename T>
T atomicMax(T* p, T value) {
  const T old = *p;
  *p = max(old, value);
  return old;
}
template <typename T>
T atomicExch(T* p, T value) {
  const T old = *p;
  *p = value;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __syncthreads() { cuda_emulation::SyncThreads(); }
inline void __syncwarp() { cuda_emulation::ExchangeInWarp(nullptr, 0); }
inline uint32_t __float_as_uint(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}
inline uint32_t __shfl_sync(uint32_t, uint32_t v, int lane) { return cuda_emulation::ExchangeInWarp(&v, 1)[lane][0]; }
inline float __shfl_sync(uint32_t mask, float v, int lane) {
  return __uint_as_float(__shfl_sync(mask, __float_as_uint(v), lane));
}
inline float __shfl_xor_sync(uint32_t, float v, int mask) {
  const uint32_t bits = __float_as_uint(v);
  const int lane = cuda_emulation::Lane();
  return __uint_as_float(cuda_emulation::ExchangeInWarp(&bits, 1)[lane ^ mask][0]);
}
inline unsigned long long __shfl_xor_sync(uint32_t, unsigned long long v, int mask) {
  const uint32_t words[2] = {static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32)};
  const int lane = cuda_emulation::Lane();
  const uint32_t* other = cuda_emulation::ExchangeInWarp(words, 2)[lane ^ mask];
  return static_cast<unsigned long long>(other[1]) << 32 | other[0];
}
inline bool __any_sync(uint32_t, bool v) {
  const uint32_t word = v ? 1 : 0;
  const cuda_emulation::Lanes lanes = cuda_emulation::ExchangeInWarp(&word, 1);
  for (int lane = 0; lane < 32; ++lane)
    if (lanes[lane][0] != 0) return true;
  return false;
}
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t s = selector >> (4 * i) & 15u;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (s & 7u))) & 255u;
    if (s & 8u) byte = (byte & 128u) ? 255u : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
inline float __fdividef(float a, float b) { return a / b; }
template <typename T>
T* Keep(T* pointer) {
  return pointer;
}
inline float Exp2(float x) { return exp2f(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float Bf16Bits(uint32_t half_word) { return __uint_as_float(half_word << 16); }
inline float HalfBits(uint32_t half_word) {
  __half_raw raw;
  raw.x = static_cast<uint16_t>(half_word);
  return __half2float(__half(raw));
}
inline uint32_t ToBf16Bits(double v) {  // one rounding
  float f = static_cast<float>(v);
  if (static_cast<double>(f) != v) {  // round to odd first
    uint32_t bits = __float_as_uint(f);
    const bool up = std::fabs(static_cast<double>(f)) > std::fabs(v);
    if ((bits & 1u) == 0) bits = up ? bits - 1 : bits + 1;
    f = __uint_as_float(bits);
  }
  const __nv_bfloat16 rounded = __float2bfloat16_rn(f);
  uint16_t half;
  std::memcpy(&half, &rounded, 2);
  return half;
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  const double v = static_cast<double>(__bfloat162float(a)) * static_cast<double>(__bfloat162float(b)) +
                   static_cast<double>(__bfloat162float(c));
  const auto bits = static_cast<uint16_t>(ToBf16Bits(v));
  __nv_bfloat16 result;
  std::memcpy(static_cast<void*>(&result), &bits, 2);
  return result;
}

inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - cuda_emulation::SharedMemory());
}
inline void CopyAsync16(uint32_t shared, const void* global, int bytes = 16) {
  cuda_emulation::CopyLater(cuda_emulation::SharedMemory() + shared, static_cast<const char*>(global), bytes);
}
inline uint64_t EvictFirstPolicy() { return 0; }
inline void CopyAsync16Policy(uint32_t shared, const void* global, uint64_t) { CopyAsync16(shared, global); }
inline void CommitAsync() { cuda_emulation::CommitCopies(); }
template <int kPending>
void WaitAsync() {
  cuda_emulation::WaitForCopies(kPending);
}
inline void LoadMatrices(uint32_t (&r)[4], uint32_t shared, bool transposed) {
  const cuda_emulation::Lanes lanes = cuda_emulation::ExchangeInWarp(&shared, 1);
  const int lane = cuda_emulation::Lane(), g = lane / 4, c = lane % 4;
  for (int m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int row = transposed ? 2 * c + i : g, col = transposed ? g : 2 * c + i;
      std::memcpy(&pair[i], cuda_emulation::SharedMemory() + lanes[m * 8 + row][0] + col * 2, 2);
    }
    r[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}
inline void LoadMatrix4(uint32_t (&r)[4], uint32_t shared) { LoadMatrices(r, shared, false); }
inline void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared) { LoadMatrices(r, shared, true); }
inline uint32_t MoveMatrixTransposed(uint32_t word) {
  const cuda_emulation::Lanes lanes = cuda_emulation::ExchangeInWarp(&word, 1);
  const int lane = cuda_emulation::Lane(), g = lane / 4, c = lane % 4;
  uint32_t result = 0;
  for (int i = 0; i < 2; ++i) result |= (lanes[4 * (2 * c + i) + g / 2][0] >> (g % 2 * 16) & 0xffffu) << (16 * i);
  return result;
}
// One MMA of words of 4 / sizeof(element) elements; at(word, i) is the ith element of a word.
template <int kPerWord, typename Sum, typename At>
void MmaOf(Sum (&d)[4], const uint32_t (&words)[6], At at) {
  const cuda_emulation::Lanes lanes = cuda_emulation::ExchangeInWarp(words, 6);
  const int lane = cuda_emulation::Lane(), g = lane / 4, c = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int upper = i / 2, column = 2 * c + i % 2;
    auto sum = static_cast<double>(d[i]);
    for (int k = 0; k < 8 * kPerWord; ++k) {
      const int owner = k / kPerWord % 4, second = k / kPerWord / 4;
      sum += at(lanes[4 * g + owner][2 * second + upper], k % kPerWord) *
             at(lanes[4 * column + owner][4 + second], k % kPerWord);
    }
    d[i] = static_cast<Sum>(sum);
  }
}
inline void Mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  MmaOf<2>(d, {a0, a1, a2, a3, b0, b1},
           [](uint32_t word, int i) { return static_cast<double>(Bf16Bits(word >> (16 * i) & 0xffffu)); });
}
inline void MmaHalf(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  MmaOf<2>(d, {a0, a1, a2, a3, b0, b1},
           [](uint32_t word, int i) { return static_cast<double>(HalfBits(word >> (16 * i) & 0xffffu)); });
}
inline void MmaInt8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  MmaOf<4>(d, {a0, a1, a2, a3, b0, b1},
           [](uint32_t word, int i) { return static_cast<double>(static_cast<int8_t>(word >> (8 * i) & 255u)); });
}
inline constexpr bool kBuildsHopper = true, kBuildsWide = true;
inline void ShowBarriers() {}
inline void InitBarrier(uint64_t* barrier, int count) { cuda_emulation::InitBarrier(barrier, count); }
inline void Arrive(uint64_t* barrier) { cuda_emulation::ArriveAt(barrier, 0); }
inline void ArriveAndExpect(uint64_t* barrier, int bytes) { cuda_emulation::ArriveAt(barrier, bytes); }
inline void WaitBarrier(uint64_t* barrier, uint32_t parity) { cuda_emulation::WaitForPhase(barrier, parity); }
inline void BulkCopy(uint32_t shared, const void* global, int bytes, uint64_t* barrier) {
  cuda_emulation::CopyForBarrier(cuda_emulation::SharedMemory() + shared, global, bytes, barrier);
}
// The words of a map here: data, rows, stride in elements, rows of a copy.
inline void BulkRows(uint32_t shared, const RowsMap& map, int column, int row, uint64_t* barrier) {
  static const char kZeros[128] = {};
  const auto* const data = reinterpret_cast<const char*>(map.words[0]);
  for (int r = 0; r < static_cast<int>(map.words[3]); ++r) {
    const bool exists = row + r < static_cast<int>(map.words[1]);
    for (int chunk = 0; chunk < 8; ++chunk) {
      const uint32_t at = shared + static_cast<uint32_t>(r * 128 + (chunk ^ (r & 7)) * 16);
      const int64_t element = static_cast<int64_t>(row + r) * static_cast<int64_t>(map.words[2]) + column + chunk * 8;
      cuda_emulation::CopyForBarrier(cuda_emulation::SharedMemory() + at, exists ? data + element * 2 : kZeros, 16,
                                     barrier);
    }
  }
}
inline void FenceGroupMma() {}
inline void FinishRegisters(uint32_t (&)[4]) {}
inline void CommitGroupMma() {}
inline void WaitGroupMma() { __syncwarp(); }
// One warp's part: its 16 rows of weights; rows of x are found by the descriptor.
template <int kN8>
void GroupMma(float (&d)[kN8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  const cuda_emulation::Lanes lanes = cuda_emulation::ExchangeInWarp(a, 4);
  const int lane = cuda_emulation::Lane(), g = lane / 4, c = lane % 4;
  const auto start = static_cast<uint32_t>(b & 0x3fffu) * 16,
             eight_rows = static_cast<uint32_t>(b >> 32 & 0x3fffu) * 16;
  auto x = [&](int column, int k) {
    uint32_t at =
        start + static_cast<uint32_t>(column / 8) * eight_rows + static_cast<uint32_t>(column % 8 * 128 + k * 2);
    at ^= (at >> 7 & 7u) << 4;
    uint16_t bits;
    std::memcpy(&bits, cuda_emulation::SharedMemory() + at, 2);
    return static_cast<double>(Bf16Bits(bits));
  };
  for (int n = 0; n < kN8; ++n)
    for (int i = 0; i < 4; ++i) {
      double sum = add ? static_cast<double>(d[n][i]) : 0.0;
      for (int k = 0; k < 16; ++k) {
        const uint32_t word = lanes[4 * g + k % 8 / 2][2 * (k / 8) + i / 2];
        sum += static_cast<double>(Bf16Bits(k % 2 ? word >> 16 : word & 0xffffu)) * x(n * 8 + 2 * c + i % 2, k);
      }
      d[n][i] = static_cast<float>(sum);
    }
}
template <int, bool>
void SetRegisters() {}
inline void SyncWarps(int warps) { cuda_emulation::SyncSome(warps * 32); }
inline void SyncCluster() { cuda_emulation::SyncCluster(); }
inline void ArriveInCluster(uint64_t* barrier, int rank) { cuda_emulation::ArriveInBlock(barrier, rank); }
inline const float* MapToCluster(const float* pointer, int rank) {
  return reinterpret_cast<const float*>(cuda_emulation::InBlock(reinterpret_cast<const char*>(pointer), rank));
}
inline void LaunchDependents() {}
inline void WaitForPrevious() {}
inline uint32_t CountArrival(uint32_t* counter) { return (*counter)++; }
inline void PrefetchL2(const void*) {}
inline unsigned long long GlobalTimer() { return 0; }
inline unsigned SmId() { return 0; }
inline uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t value) { return (a & mask) | value; }
inline uint32_t AndXor(uint32_t a, uint32_t mask, uint32_t value) { return (a & mask) ^ value; }
inline uint32_t SubHalf2(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (int i = 0; i < 2; ++i) {
    const float difference = HalfBits(a >> (16 * i) & 0xffffu) - HalfBits(b >> (16 * i) & 0xffffu);
    result |= uint32_t{__half_as_ushort(__float2half_rn(difference))} << (16 * i);
  }
  return result;
}
template <typename Operation>
uint32_t EachHalf(uint32_t a, uint32_t b, uint32_t c, Operation operation) {
  uint32_t result = 0;
  for (int i = 0; i < 2; ++i) {
    auto at = [i](uint32_t word) { return static_cast<double>(Bf16Bits(word >> (16 * i) & 0xffffu)); };
    result |= ToBf16Bits(operation(at(a), at(b), at(c))) << (16 * i);
  }
  return result;
}
inline uint32_t FmaBf162(uint32_t a, uint32_t b, uint32_t c) {
  return EachHalf(a, b, c, [](double x, double y, double z) { return x * y + z; });
}
inline uint32_t SubBf162(uint32_t a, uint32_t b) {
  return EachHalf(a, b, 0, [](double x, double y, double) { return x - y; });
}
inline uint32_t MulBf162(uint32_t a, uint32_t b) {
  return EachHalf(a, b, 0, [](double x, double y, double) { return x * y; });
}

}  // namespace voxrt::cuda_kernels
