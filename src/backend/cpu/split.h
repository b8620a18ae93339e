// How weight rows are split over workers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace voxrt::backend::cpu {

constexpr int64_t kSplitUnit = 16;  // weight rows: a full tile of every instruction set

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Part `worker` of [0, count), with borders at multiples of `unit`; parts rise with the worker.
inline Range Split(int64_t count, int64_t unit, int worker, int workers) {
  const int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * worker / workers * unit), std::min(count, units * (worker + 1) / workers * unit)};
}

}  // namespace voxrt::backend::cpu
