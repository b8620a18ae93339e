// A BatchPlan as the kernels read it: per-row arrays in one block of memory. Pure host code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/batch_plan.h"

namespace voxrt::cuda {

// Byte offsets of the arrays of a plan of `rows` rows in its block; depends on sizes alone, so that recorded pointers
// stay valid.
struct PlanLayout {
  int64_t index, first;                           // int64 [rows]: index of the row, of the group's first row
  int64_t slot, begin, count;                     // int32 [rows]: slot, first row and rows of the group
  int64_t tile_row, tile_rows;                    // int32 [rows]: attention tiles; unused ones have 0 rows
  int64_t token, audio_row, delay_row, head_row;  // int32 [rows]
  int64_t cos, sin;                               // float [rows, half]
  int64_t bytes;
};
PlanLayout MakePlanLayout(int64_t rows, int64_t half);

struct PlanTiles {
  int tiles = 0;
  int most_rows = 0;        // of one tile
  int most_group_rows = 0;  // of one session
};
// How the groups fall into attention tiles of at most `positions` rows.
PlanTiles CountTiles(const backend::BatchPlan& plan, int positions);

// Writes the plan; `out` has MakePlanLayout(plan.rows, half).bytes. CHECKs what the contract promises about groups and
// slots.
void PackPlan(const backend::BatchPlan& plan, int64_t half, int positions, int max_sessions, std::span<std::byte> out);

}  // namespace voxrt::cuda
