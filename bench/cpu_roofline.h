// What this machine can do at most, measured: the denominators of every share that a benchmark reports.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace voxrt::bench {

// Bytes read per second by all threads of the pool together from memory far larger than the caches; best of several
// passes.
double MeasureReadBandwidth(base::ThreadPool& pool);

// Floating-point operations per second of fused multiply-adds in registers by all threads (2 per element).
double MeasureFmaPeak(base::ThreadPool& pool);

}  // namespace voxrt::bench
