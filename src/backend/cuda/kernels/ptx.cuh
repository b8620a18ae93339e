// One inline function per PTX instruction that the kernels use, with the fallback of older architectures.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels/params.h"

// Compute capability 9.0 has kernels of its own (ptx_hopper.cuh), which need the instructions of sm_90a.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compute capability 9.0 is built as 90a (CMAKE_CUDA_ARCHITECTURES=90a-real)"
#endif

#ifdef VOXRT_CUDA_EMULATION
#include VOXRT_CUDA_EMULATION  // host versions of the same functions, for tests
#else
#define VOXRT_DYNAMIC_SHARED(name) extern __shared__ __align__(128) char name[]

namespace voxrt::cuda_kernels {

// Of the two kernels for many rows a device has one.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr bool kBuildsHopper = true, kBuildsWide = false;
#else
inline constexpr bool kBuildsHopper = false, kBuildsWide = true;
#endif

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes global -> shared, past L1, asynchronous. `bytes` < 16 fills the rest with zeros.
__device__ __forceinline__ void CopyAsync16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void CopyAsync16(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void CopyAsync16Policy(uint32_t shared, const void* global, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void CommitAsync() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void WaitAsync() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void LoadMatrix4(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
// Transposes an 8 x 8 matrix of 16-bit elements: row g of it in the words of lanes 4 g ..
__device__ __forceinline__ uint32_t MoveMatrixTransposed(uint32_t word) {
  uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(d) : "r"(word));
  return d;
}

// d += a b: a [16 x 16] rows, b [16 x 8] columns, bf16 with fp32 accumulation.
__device__ __forceinline__ void Mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same of fp16.
__device__ __forceinline__ void MmaHalf(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// a [16 x 32] rows, b [32 x 8] columns, int8 with int32 accumulation. A word has four of the 32: 4 c .. of the first or
// of the second 16.
__device__ __forceinline__ void MmaInt8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Programmatic dependent launch: let the next kernel of the stream start its prologue; wait for the previous one's
// results.
__device__ __forceinline__ void LaunchDependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
__device__ __forceinline__ void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Blocks that have arrived before this one. By one thread, after a barrier of its block: what the block has written is
// seen by whoever counts later, and this block sees what those before have written.
__device__ __forceinline__ uint32_t CountArrival(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;\n" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

__device__ __forceinline__ void PrefetchL2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global));
}

// a * b + c, one rounding.
__device__ __forceinline__ uint32_t FmaBf162(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ uint32_t SubBf162(uint32_t a, uint32_t b) {
  uint32_t d;
#if __CUDA_ARCH__ >= 900
  asm("sub.rn.bf16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
#else
  d = FmaBf162(b, 0xbf80bf80u, a);  // a - 1.0 * b, exact where the callers use it
#endif
  return d;
}
__device__ __forceinline__ uint32_t MulBf162(uint32_t a, uint32_t b) {
  uint32_t d;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
#else
  d = FmaBf162(a, b, 0x80008000u);  // + (-0): keeps the sign of a zero product
#endif
  return d;
}
// The same, in a register: not to be computed again.
template <typename T>
__device__ __forceinline__ T* Keep(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ unsigned long long GlobalTimer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;\n" : "=l"(now));
  return now;
}
__device__ __forceinline__ unsigned SmId() {
  unsigned sm;
  asm volatile("mov.u32 %0, %smid;\n" : "=r"(sm));
  return sm;
}

// (a & mask) | value.
__device__ __forceinline__ uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t value) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(d) : "r"(a), "r"(mask), "r"(value));
  return d;
}

// (a & mask) ^ value.
__device__ __forceinline__ uint32_t AndXor(uint32_t a, uint32_t mask, uint32_t value) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;\n" : "=r"(d) : "r"(a), "r"(mask), "r"(value));
  return d;
}
__device__ __forceinline__ uint32_t SubHalf2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

}  // namespace voxrt::cuda_kernels
#endif

namespace voxrt::cuda_kernels {

// Plain loads: ordered by the waits around them, free otherwise.
__device__ __forceinline__ uint4 LoadShared16(const char* shared) { return *reinterpret_cast<const uint4*>(shared); }
__device__ __forceinline__ uint2 LoadShared8(const char* shared) { return *reinterpret_cast<const uint2*>(shared); }
__device__ __forceinline__ uint32_t LoadShared4(const char* shared) {
  return *reinterpret_cast<const uint32_t*>(shared);
}
__device__ __forceinline__ uint32_t LoadShared2(const char* shared) {
  return *reinterpret_cast<const uint16_t*>(shared);
}

// This block's share of a prefetch.
__device__ __forceinline__ void PrefetchShare(const PrefetchRef& p) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * 128;
  for (int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 128; at < p.bytes; at += step)
    PrefetchL2(static_cast<const char*>(p.data) + at);
}

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<uint32_t&>(pair);
}
__device__ __forceinline__ uint32_t PackHalf(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<uint32_t&>(pair);
}
__device__ __forceinline__ float RoundBf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

__device__ __forceinline__ void Mark(unsigned long long* trace, int mark) {
  if (trace == nullptr || threadIdx.x != 0) return;
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (block >= kTraceBlocks) return;
  trace += block * kTraceMarks;
  trace[mark] = GlobalTimer();
  if (mark == 0) trace[5] = SmId();
}

__device__ __forceinline__ float LowBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighBf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// A warp's own view of results that other blocks wrote before the wait: read from L2, never from a stale L1 line.
__device__ __forceinline__ float LoadGlobal(const float* p) { return __ldcg(p); }

}  // namespace voxrt::cuda_kernels
