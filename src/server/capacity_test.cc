#include "server/capacity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "server/testing/fake_engine.h"

namespace voxrt::server {
namespace {

// A machine on which a step takes `fixed + each * sessions`, times what else goes on at that moment. Its time passes in
// steps only.
class FakeMachine {
 public:
  FakeMachine(double fixed_s, double each_s) : fixed_s_(fixed_s), each_s_(each_s) {}

  Capacity Estimate(double budget_s, int by_slots = 256, int by_memory = 256) {
    const Result<Capacity> capacity =
        EstimateCapacity([this](int sessions) { return Step(sessions); }, by_slots, by_memory, budget_s);
    EXPECT_TRUE(capacity.ok());
    return *capacity;
  }

  std::function<double(double now_s)> slowdown = [](double) { return 1.0; };
  double now_s = 0.0;
  int most_sessions = 0, steps = 0;

 private:
  Result<double> Step(int sessions) {
    ++steps;
    most_sessions = std::max(most_sessions, sessions);
    const double seconds = (fixed_s_ + each_s_ * sessions) * slowdown(now_s);
    now_s += seconds;
    return seconds;
  }

  const double fixed_s_, each_s_;
};

constexpr int kTrue = 72;  // (60 - 2.0) / 0.8 = 72.5

TEST(Capacity, FollowsFromTheStepsOfOneAndOfSeveralSessions) {
  FakeMachine machine(0.0020, 0.0008);
  const Capacity capacity = machine.Estimate(2.0);
  EXPECT_EQ(capacity.sessions, kTrue);
  EXPECT_EQ(capacity.by_time, kTrue);
  EXPECT_EQ(capacity.probe, 8);
  EXPECT_NEAR(capacity.step_one_s, 0.0028, 1e-9);
  EXPECT_NEAR(capacity.step_many_s, 0.0084, 1e-9);
  EXPECT_LT(machine.now_s, 2.2);
  EXPECT_EQ(machine.Estimate(2.0, 40).sessions, 40);
  EXPECT_EQ(machine.Estimate(2.0, 40, 5).sessions, 5);
}

TEST(Capacity, AMachineThatIsBusyForAMomentIsNotTakenForASlowOne) {
  for (const auto& busy : std::vector<std::function<bool(double)>>{
           [](double now) { return now < 1.7; }, [](double now) { return now > 0.3; },
           [](double now) { return std::fmod(now, 0.5) < 0.35; }}) {
    FakeMachine machine(0.0020, 0.0008);
    machine.slowdown = [&busy](double now) { return busy(now) ? 4.0 : 1.0; };
    EXPECT_EQ(machine.Estimate(2.0).sessions, kTrue);
  }
}

TEST(Capacity, GoesOnForTwiceTheTimeWhileTheFastestRoundsDisagree) {
  FakeMachine machine(0.0020, 0.0008);
  machine.slowdown = [](double now) { return now < 2.5 ? 3.0 + now : 1.0; };  // every round is slower than the last
  EXPECT_EQ(machine.Estimate(2.0).sessions, kTrue);
  EXPECT_LT(machine.now_s, 3.2);
  FakeMachine restless(0.0020, 0.0008);
  double factor = 10.0;
  restless.slowdown = [&factor](double) { return factor *= 0.995; };
  restless.Estimate(2.0);
  EXPECT_GT(restless.now_s, 4.0);
  EXPECT_LT(restless.now_s, 5.0) << "one round at most beyond the limit";
}

TEST(Capacity, AModelThatFillsTheTickIsNotMeasuredForLong) {
  FakeMachine machine(0.2, 0.01);
  const Capacity capacity = machine.Estimate(2.0);
  EXPECT_EQ(capacity.sessions, 1);
  EXPECT_EQ(machine.most_sessions, 1);
  EXPECT_LE(machine.steps, 8);
  FakeMachine slow(5.0, 1.0);
  slow.Estimate(2.0);
  EXPECT_EQ(slow.steps, 3);
}

TEST(Capacity, AStepThatFailsIsTheAnswer) {
  const auto fails = [](int) -> Result<double> { return Status(StatusCode::kInternal, "no"); };
  EXPECT_EQ(EstimateCapacity(fails, 8, 8, 2.0).status().message(), "no");
}

TEST(Capacity, IsMeasuredOnAnEngineAndBoundedByItsSlots) {
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
