// How many live sessions this machine can serve: measured, not guessed.
#pragma once

#include <cstdint>

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
};

// Runs a few live steps of one and of several sessions; takes about `budget_s` seconds at most (more only when single
// steps are slower).
Result<Capacity> MeasureCapacity(engine::Engine& engine, int64_t memory_bytes, double budget_s);

// Memory that could be taken without swapping; 0 when unknown.
int64_t AvailableMemoryBytes();

}  // namespace voxrt::server
