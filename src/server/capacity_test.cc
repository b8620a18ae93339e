#include "server/capacity.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/testing/fake_engine.h"

namespace voxrt::server {
namespace {

TEST(Capacity, IsMeasuredAndBoundedByTheEnginesSlots) {
  const auto engine = testing::FakeEngine::Create(12);
  const Result<Capacity> capacity = MeasureCapacity(*engine, 1LL << 30, 0.2);
  ASSERT_TRUE(capacity.ok()) << capacity.status().message();
  EXPECT_EQ(capacity.value().by_slots, 12);
  EXPECT_EQ(capacity.value().probe, 8);
  EXPECT_GE(capacity.value().sessions, 1);
  EXPECT_LE(capacity.value().sessions, 12);
  EXPECT_GT(capacity.value().step_one_s, 0.0);
  while (engine->info().sessions != 0) std::this_thread::yield();
}

TEST(Capacity, ALostEngineIsAnError) {
  const auto engine = testing::FakeEngine::Create(2);
  engine->LoseDevice();
  EXPECT_FALSE(MeasureCapacity(*engine, 1LL << 30, 0.2).ok());
}

TEST(Capacity, MemoryIsKnownHere) { EXPECT_GT(AvailableMemoryBytes(), 1 << 20); }

}  // namespace
}  // namespace voxrt::server
