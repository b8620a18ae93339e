// Runs CUDA kernels on the host, for tests: every thread of a block is a fiber, warp-wide instructions and barriers
// meet as on the device, asynchronous copies land only when they are waited for, the order of threads is random, and
// shared memory begins as NaN. So wrong indices, missing waits and missing barriers show without a GPU; speed and
// rounding inside the tensor cores do not.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/function_ref.h"

namespace voxrt::cuda_emulation {

// Runs all blocks of a grid, one cluster of blocks (along x) after the other. Blocks of a cluster share the kernel's
// static shared memory.
void Launch(dim3 grid, int threads, int shared_bytes, uint64_t seed, base::FunctionRef<void()> kernel, int cluster = 1);

// The rest is called by kernels (ptx_host.h).
inline constexpr int kMostWords = 8;
using Lanes = const uint32_t (*)[kMostWords];

char* SharedMemory();
void SyncThreads();
void SyncSome(int threads);  // as many threads of the block
void SyncCluster();
// Where `pointer` of the own block's shared memory lies in that of block `rank` of the cluster.
const char* InBlock(const char* pointer, int rank);
// Meets the other lanes of the warp; the words of all lanes, valid until the next exchange but one.
Lanes ExchangeInWarp(const uint32_t* words, int count);
int Lane();
// Barriers in shared memory. A copy for one lands when its phase ends.
void InitBarrier(uint64_t* barrier, int count);
void ArriveAt(uint64_t* barrier, int expected_bytes);
void ArriveInBlock(uint64_t* barrier, int rank);  // of the cluster
void CopyForBarrier(char* to, const void* from, int bytes, uint64_t* barrier);
void WaitForPhase(uint64_t* barrier, uint32_t parity);
void CopyLater(char* to, const char* from, int bytes);  // 16 bytes, those beyond `bytes` zero
void CommitCopies();
void WaitForCopies(int pending_groups);

}  // namespace voxrt::cuda_emulation
