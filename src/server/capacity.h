// How many live sessions this machine can serve: measured, not guessed.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "engine/engine.h"

namespace voxrt::server {

struct Capacity {
  int sessions = 1;          // the smallest of the three below
  int by_time = 1;           // a step of all of them stays within 60 ms of the 80 ms tick
  int by_memory = 1;         // their states, full, fit into half of the available memory
  int by_slots = 1;          // what the engine was made for
  double step_one_s = 0.0;   // a live step of one session
  double step_many_s = 0.0;  // of `probe` sessions
  int probe = 1;
  int rounds = 0;
};

// Makes one live step of so many sessions and returns its seconds.
using TimedStep = base::FunctionRef<Result<double>(int sessions)>;

// Repeats rounds of steps for `budget_s` seconds of steps, and up to twice as long while the two fastest rounds differ;
// the fastest round counts, so that a machine that is busy for a moment is not taken for a slow one. Of a model whose
// single steps fill the tick only the first round is made.
Result<Capacity> EstimateCapacity(TimedStep step, int by_slots, int by_memory, double budget_s);

// The same with sessions of `engine` and half of `memory_bytes` (0 = unknown).
Result<Capacity> MeasureCapacity(engine::Engine& engine, int64_t memory_bytes, double budget_s);

// Memory that could be taken without swapping; 0 when unknown.
int64_t AvailableMemoryBytes();

}  // namespace voxrt::server
