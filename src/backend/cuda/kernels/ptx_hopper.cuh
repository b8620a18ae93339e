// Instructions that compute capability 9.0 alone has: warpgroup MMAs, bulk copies with barriers in shared memory,
// clusters. On other devices nothing calls them.
#pragma once

#include "backend/cuda/kernels/ptx.cuh"

namespace voxrt::cuda_kernels {

// Rows of x as warpgroup MMAs read them: 64 inputs of a row are 128 bytes, whose 16-byte chunks lie at chunk ^ (row %
// 8); eight rows are 1024 bytes, aligned to as many. `shared` is the first row at the first input wanted.
__device__ __forceinline__ uint64_t GroupMmaRows(uint32_t shared) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 / 16} << 32,
                     kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | (shared & 0x3ffffu) >> 4;
}

}  // namespace voxrt::cuda_kernels

#ifndef VOXRT_CUDA_EMULATION
namespace voxrt::cuda_kernels {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Four warps multiply 64 rows of weights, each warp its 16 in the fragments of Mma, by rows of x in shared memory;
// `add` to d, or d is the product. The sums are those of Mma bit for bit (gpu_schedule_test: a stream alone runs on
// Mma).
__device__ __forceinline__ void FenceGroupMma() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
// What makes these registers comes before, not between MMAs.
__device__ __forceinline__ void FinishRegisters(uint32_t (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}
__device__ __forceinline__ void CommitGroupMma() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void WaitGroupMma() { asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory"); }
__device__ __forceinline__ void GroupMma(float (&d)[2][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, "
      "0;\n}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void GroupMma(float (&d)[4][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "{%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
        "+f"(d[3][2]), "+f"(d[3][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void GroupMma(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,"
      "%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
        "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
        "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void GroupMma(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%"
      "58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
        "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
        "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]),
        "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]), "+f"(d[12][0]),
        "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
        "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]),
        "+f"(d[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

// Barriers in shared memory: a phase ends when `count` threads have arrived and all expected bytes are there.
__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void ShowBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ __forceinline__ void ArriveAndExpect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void WaitBarrier(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra end;\nbra "
      "again;\nend:\n}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}
// Global -> shared, multiples of 16 bytes; the bytes count at the barrier.
__device__ __forceinline__ void BulkCopy(uint32_t shared, const void* global, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
// 64 columns from `column` of the map's rows from `row`, as GroupMmaRows has them; zeros beyond the last row.
__device__ __forceinline__ void BulkRows(uint32_t shared, const RowsMap& map, int column, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];\n" ::"r"(shared),
      "l"(&map), "r"(column), "r"(row), "r"(SharedAddress(barrier))
      : "memory");
}
// Registers that each thread of a warpgroup has from here on, more or fewer than before.
template <int kRegisters, bool kMore>
__device__ __forceinline__ void SetRegisters() {
  if constexpr (kMore) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
  }
}

// The first `warps` warps of a block.
__device__ __forceinline__ void SyncWarps(int warps) { asm volatile("bar.sync 1, %0;\n" ::"r"(warps * 32) : "memory"); }

// Clusters of blocks: a barrier of all their threads; arrival at the barrier that block `rank` has where this one has
// `barrier`; the address of what lies at `pointer` in the shared memory of block `rank`.
// Arrival and wait have the order of a block, not of a cluster: ptxas makes a release for the cluster wait for all that
// the thread has written to memory (MEMBAR.ALL.GPU) and an acquire empty L1. What blocks of a cluster see
// of each other here is shared memory alone, which has taken all writes of its block when the barrier before the
// arrival ends.
__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void ArriveInCluster(uint64_t* barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(SharedAddress(barrier)),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ const float* MapToCluster(const float* pointer, int rank) {
  const float* mapped;
  asm volatile("mapa.u64 %0, %1, %2;\n" : "=l"(mapped) : "l"(pointer), "r"(rank));
  return mapped;
}
#else
__device__ __forceinline__ void FenceGroupMma() {}
__device__ __forceinline__ void FinishRegisters(uint32_t (&)[4]) {}
__device__ __forceinline__ void CommitGroupMma() {}
__device__ __forceinline__ void WaitGroupMma() {}
template <int kN8>
__device__ __forceinline__ void GroupMma(float (&)[kN8][4], const uint32_t (&)[4], uint64_t, bool) {}
__device__ __forceinline__ void InitBarrier(uint64_t*, int) {}
__device__ __forceinline__ void ShowBarriers() {}
__device__ __forceinline__ void Arrive(uint64_t*) {}
__device__ __forceinline__ void ArriveAndExpect(uint64_t*, int) {}
__device__ __forceinline__ void WaitBarrier(uint64_t*, uint32_t) {}
__device__ __forceinline__ void BulkCopy(uint32_t, const void*, int, uint64_t*) {}
__device__ __forceinline__ void BulkRows(uint32_t, const RowsMap&, int, int, uint64_t*) {}
template <int, bool>
__device__ __forceinline__ void SetRegisters() {}
__device__ __forceinline__ void SyncWarps(int) {}
__device__ __forceinline__ void SyncCluster() {}
__device__ __forceinline__ void ArriveInCluster(uint64_t*, int) {}
__device__ __forceinline__ const float* MapToCluster(const float* pointer, int) { return pointer; }
#endif

}  // namespace voxrt::cuda_kernels
#endif
