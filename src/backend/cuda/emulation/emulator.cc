#include "backend/cuda/emulation/emulator.h"

#include <ucontext.h>

#include <csetjmp>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"

namespace voxrt::cuda_kernels {

// What a kernel calls threadIdx and so on: those of the running fiber.
// NOLINTBEGIN(readability-identifier-naming): CUDA's names
uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;
// NOLINTEND(readability-identifier-naming)

}  // namespace voxrt::cuda_kernels

namespace voxrt::cuda_emulation {
namespace {

constexpr size_t kStackBytes = size_t{96} << 10;
constexpr int kSharedBytes = 232 << 10;

struct Copy {
  char* to;
  const char* from;
  int bytes;
};
struct Fiber {
  ucontext_t context;  // of its first entry
  std::jmp_buf jump;
  std::unique_ptr<char[]> stack;
  bool started = false;
  bool finished = false;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};
struct Warp {
  int arrived = 0;
  int alive = 0;
  uint64_t generation = 0;
  uint32_t words[2][32][kMostWords] = {};
  std::vector<int> waiting;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<int> runnable;
  std::vector<int> at_barrier;
  int alive = 0;
  int current = -1;
  std::mt19937_64 random;
  std::jmp_buf scheduler;
  const base::FunctionRef<void()>* kernel = nullptr;
};

alignas(128) char shared_memory[kSharedBytes];
Block* block = nullptr;

Fiber& Current() { return block->fibers[static_cast<size_t>(block->current)]; }

// Leaves the running fiber; comes back when the scheduler picks it again.
void Leave() {
  if (_setjmp(Current().jump) == 0) _longjmp(block->scheduler, 1);
}

void ReleaseBarrier() {
  if (block->at_barrier.empty() || static_cast<int>(block->at_barrier.size()) < block->alive) return;
  block->runnable.insert(block->runnable.end(), block->at_barrier.begin(), block->at_barrier.end());
  block->at_barrier.clear();
}

void ReleaseWarp(Warp& warp) {
  if (warp.arrived == 0 || warp.arrived < warp.alive) return;
  warp.arrived = 0;
  ++warp.generation;
  block->runnable.insert(block->runnable.end(), warp.waiting.begin(), warp.waiting.end());
  warp.waiting.clear();
}

void Entry() {
  (*block->kernel)();
  Current().finished = true;
  --block->alive;
  Warp& warp = block->warps[static_cast<size_t>(block->current / 32)];
  --warp.alive;
  ReleaseBarrier();
  ReleaseWarp(warp);
  _longjmp(block->scheduler, 1);
}

void RunBlock(int threads, const base::FunctionRef<void()>& kernel, std::vector<std::unique_ptr<char[]>>* stacks,
              uint64_t seed) {
  Block state;
  block = &state;
  state.random.seed(seed);
  state.kernel = &kernel;
  state.fibers.resize(static_cast<size_t>(threads));
  state.warps.resize(static_cast<size_t>((threads + 31) / 32));
  state.alive = threads;
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = state.fibers[static_cast<size_t>(i)];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = (*stacks)[static_cast<size_t>(i)].get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Entry, 0);
    state.runnable.push_back(i);
    ++state.warps[static_cast<size_t>(i / 32)].alive;
  }
  std::memset(shared_memory, 0xff, sizeof(shared_memory));
  while (true) {
    if (state.runnable.empty()) break;
    const size_t pick = state.random() % state.runnable.size();
    state.current = state.runnable[pick];
    state.runnable[pick] = state.runnable.back();
    state.runnable.pop_back();
    cuda_kernels::threadIdx = {static_cast<unsigned>(state.current), 0, 0};
    if (_setjmp(state.scheduler) == 0) {
      Fiber& fiber = Current();
      if (fiber.started) _longjmp(fiber.jump, 1);
      fiber.started = true;
      setcontext(&fiber.context);
    }
  }
  VOXRT_CHECK(state.alive == 0);  // else threads wait for each other for ever
  block = nullptr;
}

}  // namespace

char* SharedMemory() { return shared_memory; }
int Lane() { return block->current % 32; }

void SyncThreads() {
  block->at_barrier.push_back(block->current);
  ReleaseBarrier();
  Leave();
}

Lanes ExchangeInWarp(const uint32_t* words, int count) {
  Warp& warp = block->warps[static_cast<size_t>(block->current / 32)];
  auto& slot = warp.words[warp.generation & 1];
  std::memcpy(slot[block->current % 32], words, static_cast<size_t>(count) * 4);
  ++warp.arrived;
  warp.waiting.push_back(block->current);
  ReleaseWarp(warp);
  Leave();
  return slot;
}

void CopyLater(char* to, const char* from, int bytes) { Current().open.push_back({to, from, bytes}); }

void CommitCopies() {
  Current().groups.push_back(std::move(Current().open));
  Current().open.clear();
}

void WaitForCopies(int pending_groups) {
  Fiber& fiber = Current();
  while (static_cast<int>(fiber.groups.size()) > pending_groups) {
    for (const Copy& copy : fiber.groups.front()) {
      std::memset(copy.to, 0, 16);
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    }
    fiber.groups.pop_front();
  }
}

void Launch(dim3 grid, int threads, int shared_bytes, uint64_t seed, base::FunctionRef<void()> kernel) {
  VOXRT_CHECK(shared_bytes <= kSharedBytes && threads <= 1024);
  std::vector<std::unique_ptr<char[]>> stacks;
  stacks.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) stacks.emplace_back(new char[kStackBytes]);
  cuda_kernels::blockDim = dim3(static_cast<unsigned>(threads));
  cuda_kernels::gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        cuda_kernels::blockIdx = {x, y, z};
        RunBlock(threads, kernel, &stacks, seed + x + 1000 * (y + 1000 * z));
      }
    }
  }
}

}  // namespace voxrt::cuda_emulation
