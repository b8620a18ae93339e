#include "server/capacity.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

namespace voxrt::server {
namespace {

constexpr double kStepBudgetSeconds = 0.060;
constexpr int kProbeSessions = 8;
constexpr size_t kTickSamples = 1280;
constexpr int kWarmUpTicks = 48;  // left pad and delay: steps from here on are like those of a running session
constexpr int kMeasuredTicks = 12;
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// Feeds one tick to every session and waits for all their tokens.
Status Step(std::vector<std::unique_ptr<engine::Session>>& sessions, std::vector<int64_t>* tokens) {
  const std::vector<float> silence(kTickSamples, 0.0f);
  std::vector<engine::Event> events;
  for (auto& session : sessions) {
    VOXRT_RETURN_IF_ERROR(session->FeedAll(silence));
  }
  for (size_t i = 0; i < sessions.size(); ++i) {
    const int64_t wanted = (*tokens)[i] + 1;
    const Clock::time_point begin = Clock::now();
    while ((*tokens)[i] < wanted && Since(begin) < 30.0) {
      if (!sessions[i]->Wait(&events, std::chrono::milliseconds(1000))) continue;
      for (const engine::Event& event : events) {
        if (event.type == engine::EventType::kError) return event.status;
        if (event.type == engine::EventType::kToken) ++(*tokens)[i];
      }
    }
  }
  return {};
}

Result<double> MeasureStep(engine::Engine& engine, int count, double budget_s) {
  std::vector<std::unique_ptr<engine::Session>> sessions;
  engine::SessionOptions options;
  options.all_tokens = true;
  for (int i = 0; i < count; ++i) {
    VOXRT_ASSIGN_OR_RETURN(auto session, engine.NewSession(options));
    VOXRT_RETURN_IF_ERROR(session->FeedAll(std::vector<float>(kTickSamples * kWarmUpTicks, 0.0f)));
    sessions.push_back(std::move(session));
  }
  std::vector<int64_t> tokens(sessions.size(), 0);
  VOXRT_RETURN_IF_ERROR(Step(sessions, &tokens));
  std::vector<engine::Event> events;
  for (auto& session : sessions) {  // what the warm-up still gives
    while (session->Wait(&events, std::chrono::milliseconds(20))) {
    }
  }
  std::fill(tokens.begin(), tokens.end(), 0);
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  while (static_cast<int>(times.size()) < kMeasuredTicks && (times.size() < 3 || Since(begin) < budget_s)) {
    const Clock::time_point step = Clock::now();
    VOXRT_RETURN_IF_ERROR(Step(sessions, &tokens));
    times.push_back(Since(step));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

Result<Capacity> MeasureCapacity(engine::Engine& engine, int64_t memory_bytes, double budget_s) {
  const engine::EngineInfo info = engine.info();
  Capacity capacity;
  capacity.by_slots = std::max(1, info.max_sessions);
  capacity.by_memory =
      info.session_bytes_at_most > 0 && memory_bytes > 0
          ? static_cast<int>(std::clamp<int64_t>(memory_bytes / 2 / info.session_bytes_at_most, 1, capacity.by_slots))
          : capacity.by_slots;
  capacity.probe = std::min({kProbeSessions, capacity.by_slots, capacity.by_memory});
  VOXRT_ASSIGN_OR_RETURN(capacity.step_one_s, MeasureStep(engine, 1, budget_s / 2));
  capacity.step_many_s = capacity.step_one_s;
  capacity.by_time = 1;
  if (capacity.probe > 1) {
    VOXRT_ASSIGN_OR_RETURN(capacity.step_many_s, MeasureStep(engine, capacity.probe, budget_s / 2));
    const double each = std::max((capacity.step_many_s - capacity.step_one_s) / (capacity.probe - 1), 1e-6);
    const double more = (kStepBudgetSeconds - capacity.step_one_s) / each;
    capacity.by_time = static_cast<int>(std::clamp(1.0 + more, 1.0, static_cast<double>(capacity.by_slots)));
  }
  capacity.sessions = std::min({capacity.by_time, capacity.by_memory, capacity.by_slots});
  return capacity;
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
