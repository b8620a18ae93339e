#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace voxrt::base {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` differs from `old`: spins at most kSpin, then parks in the kernel.
uint32_t WaitForChange(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// One worker's part: the number of the last job in which somebody took it. On a line of its own.
struct alignas(64) Part {
  std::atomic<uint32_t> taken{0};

  // True for exactly one caller in job `generation`. A thread that comes late, with the number of a job that is over,
  // finds the number taken or passed (numbers wrap, so they are compared by difference).
  bool Take(uint32_t generation) {
    uint32_t last = taken.load(std::memory_order_relaxed);
    if (static_cast<int32_t>(generation - last) <= 0) return false;
    return taken.compare_exchange_strong(last, generation, std::memory_order_acq_rel);
  }
};

}  // namespace

struct ThreadPool::State {
  explicit State(int count) : threads(count), parts(static_cast<size_t>(count)) {}

  std::vector<std::thread> workers;
  int threads;
  std::vector<Part> parts;
  alignas(64) std::atomic<uint32_t> generation{0};  // number of the current or last job
  alignas(64) std::atomic<uint32_t> running{0};     // parts of it that are not done
  std::atomic<bool> stop{false};
  const FunctionRef<void(int, int)>* job = nullptr;  // read only by who has taken a part: the job cannot end before

  void RunPart(int part) {
    (*job)(part, threads);
    if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
  }

  void Work(int worker) {
    uint32_t seen = 0;
    for (;;) {
      seen = WaitForChange(generation, seen);
      if (stop.load(std::memory_order_relaxed)) return;
      if (parts[static_cast<size_t>(worker)].Take(seen)) RunPart(worker);
    }
  }
};

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  if (threads <= 0) threads = 1;
  state_ = std::make_unique<State>(threads);
  for (int worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([state = state_.get(), worker] { state->Work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->generation.fetch_add(1, std::memory_order_acq_rel);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return state_->threads; }

void ThreadPool::Run(FunctionRef<void(int, int)> job) {
  State& s = *state_;
  if (s.threads == 1) {
    job(0, 1);
    return;
  }
  s.job = &job;
  s.running.store(static_cast<uint32_t>(s.threads), std::memory_order_relaxed);
  const uint32_t generation = s.generation.fetch_add(1, std::memory_order_acq_rel) + 1;
  s.generation.notify_all();
  for (int part = 0; part < s.threads; ++part) {
    if (s.parts[static_cast<size_t>(part)].Take(generation)) s.RunPart(part);
  }
  while (uint32_t left = s.running.load(std::memory_order_acquire)) WaitForChange(s.running, left);
}

}  // namespace voxrt::base
