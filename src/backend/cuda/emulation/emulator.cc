#include "backend/cuda/emulation/emulator.h"

#include <ucontext.h>

#include <csetjmp>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
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

// The blocks of a cluster: fiber i is thread i % threads of block i / threads.
struct Barrier {
  std::vector<int> waiting;
  int alive = 0;
};
struct PhaseBarrier {
  int count = 0;
  int arrived = 0;
  int64_t bytes = 0;  // expected and not yet asked for
  uint32_t phase = 0;
  std::vector<Copy> copies;
};
struct Cluster {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<int> runnable;
  std::vector<Barrier> blocks, parts;  // all threads, some threads of each block
  Barrier all;
  std::map<std::pair<int, uint64_t*>, PhaseBarrier> phases;  // by block: they share static memory
  int threads = 0;
  int current = -1;
  std::mt19937_64 random;
  std::jmp_buf scheduler;
  const base::FunctionRef<void()>* kernel = nullptr;
};

constexpr int kMostBlocks = 4;
alignas(1024) char shared_memory[kMostBlocks][kSharedBytes];
Cluster* cluster = nullptr;

Fiber& Current() { return cluster->fibers[static_cast<size_t>(cluster->current)]; }
int BlockOf(int fiber) { return fiber / cluster->threads; }
Warp& CurrentWarp() { return cluster->warps[static_cast<size_t>(cluster->current / 32)]; }

// Leaves the running fiber; comes back when the scheduler picks it again.
void Leave() {
  if (_setjmp(Current().jump) == 0) _longjmp(cluster->scheduler, 1);
}

void Release(Barrier& barrier) {
  if (barrier.waiting.empty() || static_cast<int>(barrier.waiting.size()) < barrier.alive) return;
  cluster->runnable.insert(cluster->runnable.end(), barrier.waiting.begin(), barrier.waiting.end());
  barrier.waiting.clear();
}
void WaitAt(Barrier& barrier) {
  barrier.waiting.push_back(cluster->current);
  Release(barrier);
  Leave();
}

void ReleaseWarp(Warp& warp) {
  if (warp.arrived == 0 || warp.arrived < warp.alive) return;
  warp.arrived = 0;
  ++warp.generation;
  cluster->runnable.insert(cluster->runnable.end(), warp.waiting.begin(), warp.waiting.end());
  warp.waiting.clear();
}

void Entry() {
  (*cluster->kernel)();
  Current().finished = true;
  Barrier& block = cluster->blocks[static_cast<size_t>(BlockOf(cluster->current))];
  --block.alive;
  --cluster->all.alive;
  --CurrentWarp().alive;
  Release(block);
  Release(cluster->all);
  ReleaseWarp(CurrentWarp());
  _longjmp(cluster->scheduler, 1);
}

void SetUp(int blocks, int threads, std::vector<std::unique_ptr<char[]>>* stacks, Cluster* state) {
  state->threads = threads;
  state->fibers.resize(static_cast<size_t>(blocks * threads));
  state->warps.resize(static_cast<size_t>((blocks * threads + 31) / 32));
  state->blocks.resize(static_cast<size_t>(blocks));
  state->parts.resize(static_cast<size_t>(blocks));
  for (Barrier& barrier : state->blocks) barrier.alive = threads;
  state->all.alive = blocks * threads;
  for (int i = 0; i < blocks * threads; ++i) {
    Fiber& fiber = state->fibers[static_cast<size_t>(i)];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = (*stacks)[static_cast<size_t>(i)].get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Entry, 0);
    state->runnable.push_back(i);
    ++state->warps[static_cast<size_t>(i / 32)].alive;
  }
  for (int i = 0; i < blocks; ++i) std::memset(shared_memory[i], 0xff, kSharedBytes);
}

void RunCluster(int blocks, int threads, uint3 first_block, const base::FunctionRef<void()>& kernel,
                std::vector<std::unique_ptr<char[]>>* stacks, uint64_t seed) {
  Cluster state;
  cluster = &state;
  state.random.seed(seed);
  state.kernel = &kernel;
  SetUp(blocks, threads, stacks, &state);
  while (true) {
    if (state.runnable.empty()) break;
    const size_t pick = state.random() % state.runnable.size();
    state.current = state.runnable[pick];
    state.runnable[pick] = state.runnable.back();
    state.runnable.pop_back();
    cuda_kernels::threadIdx = {static_cast<unsigned>(state.current % threads), 0, 0};
    cuda_kernels::blockIdx = {first_block.x + static_cast<unsigned>(BlockOf(state.current)), first_block.y,
                              first_block.z};
    if (_setjmp(state.scheduler) == 0) {
      Fiber& fiber = Current();
      if (fiber.started) _longjmp(fiber.jump, 1);
      fiber.started = true;
      setcontext(&fiber.context);
    }
  }
  VOXRT_CHECK(state.all.alive == 0);  // else threads wait for each other for ever
  cluster = nullptr;
}

}  // namespace

char* SharedMemory() { return shared_memory[BlockOf(cluster->current)]; }
int Lane() { return cluster->current % 32; }

void SyncThreads() { WaitAt(cluster->blocks[static_cast<size_t>(BlockOf(cluster->current))]); }
void SyncSome(int threads) {
  Barrier& part = cluster->parts[static_cast<size_t>(BlockOf(cluster->current))];
  part.alive = threads;
  WaitAt(part);
}
void SyncCluster() { WaitAt(cluster->all); }
const char* InBlock(const char* pointer, int rank) {
  VOXRT_CHECK(rank < static_cast<int>(cluster->blocks.size()));
  return shared_memory[rank] + (pointer - SharedMemory());
}

Lanes ExchangeInWarp(const uint32_t* words, int count) {
  Warp& warp = CurrentWarp();
  auto& slot = warp.words[warp.generation & 1];
  std::memcpy(slot[cluster->current % 32], words, static_cast<size_t>(count) * 4);
  ++warp.arrived;
  warp.waiting.push_back(cluster->current);
  ReleaseWarp(warp);
  Leave();
  return slot;
}

namespace {

PhaseBarrier& PhasesOf(uint64_t* barrier) { return cluster->phases[{BlockOf(cluster->current), barrier}]; }
void EndPhase(PhaseBarrier& b) {
  if (b.arrived < b.count || b.bytes != 0) return;
  for (const Copy& copy : b.copies) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  b.copies.clear();
  b.arrived = 0;
  ++b.phase;
}
void Arrive(PhaseBarrier& b, int expected_bytes) {
  VOXRT_CHECK(b.count > 0 && b.arrived < b.count);
  ++b.arrived;
  b.bytes += expected_bytes;
  EndPhase(b);
}

}  // namespace

void InitBarrier(uint64_t* barrier, int count) { PhasesOf(barrier) = {.count = count}; }
void ArriveAt(uint64_t* barrier, int expected_bytes) { Arrive(PhasesOf(barrier), expected_bytes); }
void ArriveInBlock(uint64_t* barrier, int rank) { Arrive(cluster->phases[{rank, barrier}], 0); }
void CopyForBarrier(char* to, const void* from, int bytes, uint64_t* barrier) {
  PhaseBarrier& b = PhasesOf(barrier);
  b.copies.push_back({to, static_cast<const char*>(from), bytes});
  b.bytes -= bytes;
  EndPhase(b);
}
void WaitForPhase(uint64_t* barrier, uint32_t parity) {
  for (int turns = 0; (PhasesOf(barrier).phase & 1u) == parity; ++turns) {
    VOXRT_CHECK(turns < 1000000);  // else nobody will end the phase
    cluster->runnable.push_back(cluster->current);
    Leave();
  }
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

void Launch(dim3 grid, int threads, int shared_bytes, uint64_t seed, base::FunctionRef<void()> kernel, int blocks) {
  VOXRT_CHECK(shared_bytes <= kSharedBytes && threads <= 1024 && blocks <= kMostBlocks);
  VOXRT_CHECK(grid.x % static_cast<unsigned>(blocks) == 0 && (blocks == 1 || threads % 32 == 0));
  std::vector<std::unique_ptr<char[]>> stacks;
  stacks.reserve(static_cast<size_t>(blocks * threads));
  for (int i = 0; i < blocks * threads; ++i) stacks.emplace_back(new char[kStackBytes]);
  cuda_kernels::blockDim = dim3(static_cast<unsigned>(threads));
  cuda_kernels::gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += static_cast<unsigned>(blocks))
        RunCluster(blocks, threads, {x, y, z}, kernel, &stacks, seed + x + 1000 * (y + 1000 * z));
    }
  }
}

}  // namespace voxrt::cuda_emulation
