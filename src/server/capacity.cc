#include "server/capacity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace voxrt::server {
namespace {

constexpr double kStepBudgetSeconds = 0.060;
constexpr int kProbeSessions = 8;
constexpr size_t kTickSamples = 1280;
constexpr int kWarmUpTicks = 48;  // left pad and delay: steps from here on are like those of a running session
constexpr int kRoundSteps = 8;    // of one session, then as many of all; their medians are the round
constexpr int kFewestSteps = 3;   // when they take longer than the limit
constexpr double kSame = 1.05;    // two rounds that differ by less agree
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// The two fastest rounds of one kind.
struct Fastest {
  double best = std::numeric_limits<double>::infinity(), second = best;

  void Add(double seconds) {
    if (seconds < best) std::swap(seconds, best);
    second = std::min(second, seconds);
  }
  bool settled() const { return second <= best * kSame; }
};

// Median of one round; adds its time to *spent_s.
Result<double> Round(TimedStep step, int sessions, double limit_s, double* spent_s) {
  std::vector<double> times;
  while (times.size() < kRoundSteps && (times.size() < kFewestSteps || *spent_s < limit_s)) {
    VOXRT_ASSIGN_OR_RETURN(const double seconds, step(sessions));
    times.push_back(seconds);
    *spent_s += seconds;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Sessions that are fed silence; more are opened when they are asked for.
class SilentSessions {
 public:
  explicit SilentSessions(engine::Engine& engine) : engine_(engine) {}

  // One tick for each of the first `count` sessions, until all their tokens are there.
  Result<double> Step(int count) {
    while (static_cast<int>(sessions_.size()) < count) VOXRT_RETURN_IF_ERROR(Open());
    const Clock::time_point begin = Clock::now();
    const std::vector<float> silence(kTickSamples, 0.0f);
    for (int i = 0; i < count; ++i) VOXRT_RETURN_IF_ERROR(sessions_[static_cast<size_t>(i)]->FeedAll(silence));
    for (int i = 0; i < count; ++i) VOXRT_RETURN_IF_ERROR(WaitForTokens(*sessions_[static_cast<size_t>(i)], 1));
    return Since(begin);
  }

 private:
  Status Open() {
    engine::SessionOptions options;
    options.all_tokens = true;
    VOXRT_ASSIGN_OR_RETURN(auto session, engine_.NewSession(options));
    VOXRT_RETURN_IF_ERROR(session->FeedAll(std::vector<float>(kTickSamples * kWarmUpTicks, 0.0f)));
    // The first of these ticks fill the delay and give no token.
    const int64_t delay_ticks = engine_.info().default_delay_ms / 80;
    VOXRT_RETURN_IF_ERROR(WaitForTokens(*session, std::max<int64_t>(kWarmUpTicks - delay_ticks - 1, 1)));
    sessions_.push_back(std::move(session));
    return {};
  }

  static Status WaitForTokens(engine::Session& session, int64_t count) {
    std::vector<engine::Event> events;
    for (const Clock::time_point begin = Clock::now(); count > 0 && Since(begin) < 30.0;) {
      if (!session.Wait(&events, std::chrono::milliseconds(1000))) continue;
      for (const engine::Event& event : events) {
        if (event.type == engine::EventType::kError) return event.status;
        if (event.type == engine::EventType::kToken) --count;
      }
    }
    return {};
  }

  engine::Engine& engine_;
  std::vector<std::unique_ptr<engine::Session>> sessions_;
};

}  // namespace

Result<Capacity> EstimateCapacity(TimedStep step, int by_slots, int by_memory, double budget_s) {
  Capacity capacity;
  capacity.by_slots = by_slots;
  capacity.by_memory = by_memory;
  capacity.probe = std::min({kProbeSessions, by_slots, by_memory});
  Fastest one, many;
  const double limit_s = 2.0 * budget_s;
  double spent_s = 0.0;
  do {
    VOXRT_ASSIGN_OR_RETURN(const double single, Round(step, 1, limit_s, &spent_s));
    one.Add(single);
    ++capacity.rounds;
    if (one.best >= kStepBudgetSeconds || capacity.probe == 1) break;
    VOXRT_ASSIGN_OR_RETURN(const double all, Round(step, capacity.probe, limit_s, &spent_s));
    many.Add(all);
  } while (spent_s < budget_s || (spent_s < limit_s && !(one.settled() && many.settled())));
  capacity.step_one_s = capacity.step_many_s = one.best;
  capacity.by_time = 1;
  if (std::isfinite(many.best)) {
    capacity.step_many_s = many.best;
    const double each = std::max((many.best - one.best) / (capacity.probe - 1), 1e-6);
    const double more = (kStepBudgetSeconds - one.best) / each;
    capacity.by_time = static_cast<int>(std::clamp(1.0 + more, 1.0, static_cast<double>(by_slots)));
  } else {
    capacity.probe = 1;
  }
  capacity.sessions = std::min({capacity.by_time, by_memory, by_slots});
  return capacity;
}

Result<Capacity> MeasureCapacity(engine::Engine& engine, int64_t memory_bytes, double budget_s) {
  const engine::EngineInfo info = engine.info();
  const int by_slots = std::max(1, info.max_sessions);
  int by_memory = by_slots;
  if (info.session_bytes_at_most > 0 && memory_bytes > 0) {
    by_memory = static_cast<int>(std::clamp<int64_t>(memory_bytes / 2 / info.session_bytes_at_most, 1, by_slots));
  }
  SilentSessions sessions(engine);
  return EstimateCapacity([&](int count) { return sessions.Step(count); }, by_slots, by_memory, budget_s);
}

int64_t AvailableMemoryBytes() {
  FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  char line[256];
  long long kilobytes = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %lld", &kilobytes) == 1) break;
  }
  std::fclose(file);
  return static_cast<int64_t>(kilobytes) * 1024;
}

}  // namespace voxrt::server
