// Page bookkeeping: growth, refusal without change, reuse, and the page that nobody owns.
#include "backend/cuda/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace voxrt::cuda {
namespace {

TEST(PagePoolTest, PagesAreGivenOnceAndNeverPageZero) {
  PagePool pool(3, 4, 9);
  int begin = 0;
  int end = 0;
  ASSERT_TRUE(pool.Grow(0, 4, &begin, &end));
  EXPECT_EQ(begin, 0);
  EXPECT_EQ(end, 4);
  ASSERT_TRUE(pool.Grow(2, 3, &begin, &end));
  std::set<int32_t> seen;
  for (int i = 0; i < 4; ++i) seen.insert(pool.row(0)[i]);
  for (int i = 0; i < 3; ++i) seen.insert(pool.row(2)[i]);
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(seen.count(0), 0u);
  EXPECT_EQ(pool.row(1)[0], 0) << "a slot without pages points to page 0";
}

TEST(PagePoolTest, GrowingIsRefusedWithoutChangeWhenPagesAreOut) {
  PagePool pool(2, 4, 6);
  int begin = 0;
  int end = 0;
  ASSERT_TRUE(pool.Grow(0, 4, &begin, &end));
  EXPECT_FALSE(pool.Grow(1, 2, &begin, &end));
  EXPECT_EQ(pool.pages_of(1), 0);
  EXPECT_EQ(pool.free_pages(), 1);
  ASSERT_TRUE(pool.Grow(1, 1, &begin, &end));
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(PagePoolTest, GrowthKeepsPagesAndReleaseGivesThemBack) {
  PagePool pool(2, 4, 9);
  int begin = 0;
  int end = 0;
  ASSERT_TRUE(pool.Grow(0, 1, &begin, &end));
  const int32_t first = pool.row(0)[0];
  ASSERT_TRUE(pool.Grow(0, 3, &begin, &end));
  EXPECT_EQ(begin, 1);
  EXPECT_EQ(end, 3);
  EXPECT_EQ(pool.row(0)[0], first);
  ASSERT_TRUE(pool.Grow(0, 2, &begin, &end));
  EXPECT_EQ(begin, end) << "never shrinks";
  pool.Release(0);
  EXPECT_EQ(pool.free_pages(), 8);
  EXPECT_EQ(pool.row(0)[2], 0);
}

TEST(PagePoolTest, MemoryForAllSessionsIsSharedInFull) {
  const PoolShares shares = ShareMemory(1000, 4, 100, 150);
  EXPECT_EQ(shares.encoder, 1.0);
  EXPECT_EQ(shares.decoder, 1.0);
}

// 512 sessions of int8 caches on a card of 141 GB: all encoder rings, and a third of each decoder ring.
TEST(PagePoolTest, EncoderRingsComeFirst) {
  const PoolShares shares = ShareMemory(136'000, 512, 115, 436);
  EXPECT_EQ(shares.encoder, 1.0);
  EXPECT_NEAR(shares.decoder, (136'000.0 - 512 * 115) / (512 * 436), 1e-6);
}

TEST(PagePoolTest, TheDecoderKeepsAThirdAndNothingIsLeftOver) {
  PoolShares shares = ShareMemory(900, 10, 100, 100);
  EXPECT_NEAR(shares.encoder, 0.6, 1e-9);
  EXPECT_NEAR(shares.decoder, 0.3, 1e-9);
  shares = ShareMemory(900, 10, 100, 10);  // less than a third is all that it needs
  EXPECT_NEAR(shares.encoder, 0.8, 1e-9);
  EXPECT_EQ(shares.decoder, 1.0);
}

TEST(PagePoolTest, EachPoolHoldsOneSession) {
  PoolShares shares = ShareMemory(100, 2, 90, 10);
  EXPECT_NEAR(shares.encoder * 2 * 90, 90, 1e-9);
  EXPECT_NEAR(shares.decoder * 2 * 10, 10, 1e-9);
  shares = ShareMemory(100, 2, 10, 90);
  EXPECT_NEAR(shares.encoder * 2 * 10, 10, 1e-9);
  EXPECT_NEAR(shares.decoder * 2 * 90, 90, 1e-9);
}

}  // namespace
}  // namespace voxrt::cuda
