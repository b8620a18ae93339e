#include "backend/cuda/plan_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace voxrt::cuda {
namespace {

template <typename T>
T* At(std::span<std::byte> out, int64_t offset) {
  return reinterpret_cast<T*>(out.data() + offset);
}

}  // namespace

PlanLayout MakePlanLayout(int64_t rows, int64_t half) {
  PlanLayout l{};
  int64_t at = 0;
  auto take = [&at](int64_t bytes) {
    const int64_t begin = at;
    at = (at + bytes + 15) / 16 * 16;
    return begin;
  };
  l.index = take(rows * 8);
  l.first = take(rows * 8);
  for (int64_t* offset :
       {&l.slot, &l.begin, &l.count, &l.tile_row, &l.tile_rows, &l.token, &l.audio_row, &l.delay_row, &l.head_row}) {
    *offset = take(rows * 4);
  }
  l.cos = take(rows * half * 4);
  l.sin = take(rows * half * 4);
  l.bytes = (at + 255) / 256 * 256;
  return l;
}

PlanTiles CountTiles(const backend::BatchPlan& plan, int positions) {
  PlanTiles result;
  for (const backend::PlanGroup& group : plan.groups) {
    result.tiles += (group.row_count + positions - 1) / positions;
    result.most_rows = std::max(result.most_rows, std::min<int>(group.row_count, positions));
    result.most_group_rows = std::max<int>(result.most_group_rows, group.row_count);
  }
  return result;
}

void PackPlan(const backend::BatchPlan& plan, int64_t half, int positions, int max_sessions, std::span<std::byte> out) {
  const PlanLayout l = MakePlanLayout(plan.rows, half);
  VOXRT_CHECK(static_cast<int64_t>(out.size()) >= l.bytes);
  std::memset(out.data(), 0, static_cast<size_t>(l.bytes));
  int32_t next = 0;
  int tile = 0;
  for (const backend::PlanGroup& group : plan.groups) {
    VOXRT_CHECK(group.row_begin == next && group.row_count >= 1 && group.first_index >= 0);
    VOXRT_CHECK(group.slot >= 0 && group.slot < max_sessions);
    next += group.row_count;
    VOXRT_CHECK(next <= plan.rows);
    for (int32_t row = group.row_begin; row < next; ++row) {
      At<int64_t>(out, l.index)[row] = group.first_index + (row - group.row_begin);
      At<int64_t>(out, l.first)[row] = group.first_index;
      At<int32_t>(out, l.slot)[row] = group.slot;
      At<int32_t>(out, l.begin)[row] = group.row_begin;
      At<int32_t>(out, l.count)[row] = group.row_count;
    }
    for (int32_t row = group.row_begin; row < next; row += positions, ++tile) {
      At<int32_t>(out, l.tile_row)[tile] = row;
      At<int32_t>(out, l.tile_rows)[tile] = std::min<int32_t>(positions, next - row);
    }
  }
  VOXRT_CHECK(next == plan.rows);
  auto copy = [&](int64_t offset, const auto& values, int64_t most) {
    VOXRT_CHECK(static_cast<int64_t>(values.size()) <= most);
    if (!values.empty()) std::memcpy(out.data() + offset, values.data(), values.size() * sizeof(values[0]));
  };
  copy(l.token, plan.token, plan.rows);
  copy(l.audio_row, plan.audio_row, plan.rows);
  copy(l.delay_row, plan.delay_row, plan.rows);
  copy(l.head_row, plan.head_rows, plan.rows);
  copy(l.cos, plan.rope_cos, plan.rows * half);
  copy(l.sin, plan.rope_sin, plan.rows * half);
}

}  // namespace voxrt::cuda
