// Where the time of a live tick goes: marks inside the kernels, by kind of phase.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu_model.h"

namespace voxrt::bench {

// Runs `tick` a few times with marks and prints one line per kind of phase: how many a tick has, mean µs from its start
// to that of the next phase, and the parts of it. Graphs of the stream are made anew.
void PrintPhases(SyntheticModel& model, const std::function<void()>& tick);

}  // namespace voxrt::bench
