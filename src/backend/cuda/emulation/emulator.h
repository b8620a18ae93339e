// Runs CUDA kernels on the host, for tests: every thread of a block is a fiber, warp-wide instructions and barriers
// meet as on the device, asynchronous copies land only when they are waited for, the order of threads is random, and
// shared memory begins as NaN. So wrong indices, missing waits and missing barriers show without a GPU; speed and
// rounding inside the tensor cores do not.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/function_ref.h"

namespace voxrt::cuda_emulation {

// Runs all blocks of a grid, one after the other.
void Launch(dim3 grid, int threads, int shared_bytes, uint64_t seed, base::FunctionRef<void()> kernel);

// The rest is called by kernels (ptx_host.h).
inline constexpr int kMostWords = 8;
using Lanes = const uint32_t (*)[kMostWords];

char* SharedMemory();
void SyncThreads();
// Meets the other lanes of the warp; the words of all lanes, valid until the next exchange but one.
Lanes ExchangeInWarp(const uint32_t* words, int count);
int Lane();
void CopyLater(char* to, const char* from, int bytes);  // 16 bytes, those beyond `bytes` zero
void CommitCopies();
void WaitForCopies(int pending_groups);

}  // namespace voxrt::cuda_emulation
