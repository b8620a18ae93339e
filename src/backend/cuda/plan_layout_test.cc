// Plans as kernels read them: rows of groups, attention tiles, layout by size alone.
#include "backend/cuda/plan_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace voxrt::cuda {
namespace {

backend::BatchPlan TwoGroups() {
  backend::BatchPlan plan;
  plan.groups = {{.slot = 3, .row_begin = 0, .row_count = 5, .first_index = 1LL << 40},
                 {.slot = 1, .row_begin = 5, .row_count = 2, .first_index = 7}};
  plan.rows = 7;
  plan.token = {1, 2, 3, 4, 5, 6, backend::BatchPlan::kDeviceToken};
  plan.head_rows = {4, 6};
  plan.rope_cos.assign(14, 0.5f);
  plan.rope_sin.assign(14, -0.5f);
  return plan;
}

TEST(PlanLayoutTest, RowsKnowTheirSessionIndexAndGroup) {
  const backend::BatchPlan plan = TwoGroups();
  const PlanLayout l = MakePlanLayout(7, 2);
  std::vector<std::byte> bytes(static_cast<size_t>(l.bytes), std::byte{0xff});
  PackPlan(plan, 2, 4, 8, bytes);
  const auto* index = reinterpret_cast<const int64_t*>(bytes.data() + l.index);
  const auto* first = reinterpret_cast<const int64_t*>(bytes.data() + l.first);
  const auto* slot = reinterpret_cast<const int32_t*>(bytes.data() + l.slot);
  const auto* begin = reinterpret_cast<const int32_t*>(bytes.data() + l.begin);
  const auto* count = reinterpret_cast<const int32_t*>(bytes.data() + l.count);
  EXPECT_EQ(index[4], (1LL << 40) + 4);
  EXPECT_EQ(first[4], 1LL << 40);
  EXPECT_EQ(index[6], 8);
  EXPECT_EQ(slot[4], 3);
  EXPECT_EQ(slot[5], 1);
  EXPECT_EQ(begin[6], 5);
  EXPECT_EQ(count[6], 2);
  EXPECT_EQ(reinterpret_cast<const int32_t*>(bytes.data() + l.token)[6], -1);
  EXPECT_EQ(reinterpret_cast<const int32_t*>(bytes.data() + l.head_row)[1], 6);
  EXPECT_EQ(reinterpret_cast<const float*>(bytes.data() + l.sin)[13], -0.5f);
}

TEST(PlanLayoutTest, TilesNeverSpanTwoSessionsAndUnusedOnesAreEmpty) {
  const PlanLayout l = MakePlanLayout(7, 2);
  std::vector<std::byte> bytes(static_cast<size_t>(l.bytes));
  PackPlan(TwoGroups(), 2, 4, 8, bytes);
  const auto* row = reinterpret_cast<const int32_t*>(bytes.data() + l.tile_row);
  const auto* rows = reinterpret_cast<const int32_t*>(bytes.data() + l.tile_rows);
  EXPECT_EQ(std::vector<int32_t>(row, row + 3), (std::vector<int32_t>{0, 4, 5}));
  EXPECT_EQ(std::vector<int32_t>(rows, rows + 7), (std::vector<int32_t>{4, 1, 2, 0, 0, 0, 0}));
  const PlanTiles tiles = CountTiles(TwoGroups(), 4);
  EXPECT_EQ(tiles.tiles, 3);
  EXPECT_EQ(tiles.most_rows, 4);
  EXPECT_EQ(tiles.most_group_rows, 5);
}

TEST(PlanLayoutTest, ArraysAreAlignedAndDoNotOverlap) {
  for (const int64_t rows : {1, 3, 64, 513}) {
    const PlanLayout l = MakePlanLayout(rows, 32);
    const int64_t offsets[] = {l.index, l.first,     l.slot,      l.begin,    l.count, l.tile_row, l.tile_rows,
                               l.token, l.audio_row, l.delay_row, l.head_row, l.cos,   l.sin,      l.bytes};
    for (size_t i = 0; i + 1 < std::size(offsets); ++i) {
      const int64_t size = i < 2 ? rows * 8 : i < 11 ? rows * 4 : rows * 32 * 4;
      EXPECT_EQ(offsets[i] % 16, 0);
      EXPECT_GE(offsets[i + 1], offsets[i] + size) << "array " << i << ", " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace voxrt::cuda
