#include "gpu_phases.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/stream.h"

namespace voxrt::bench {
namespace {

constexpr size_t kBlocks = cuda_kernels::kTraceBlocks;
constexpr size_t kMarks = cuda_kernels::kTraceMarks;

struct Sum {
  int count = 0;
  double whole = 0, input = 0, sums = 0, end = 0, last_start = 0, last_end = 0, doubled = 0;
};

class Marks {
 public:
  explicit Marks(std::vector<unsigned long long> marks) : marks_(std::move(marks)) {}
  double At(size_t phase, size_t block, size_t mark) const {  // µs; 0 where the block has left no mark
    return static_cast<double>(marks_[(phase * kBlocks + block) * kMarks + mark] % 1000000000000ull) / 1000.0;
  }
  // When the wait of a phase is over: its first block's mark.
  double BeginOf(size_t phase) const {
    double first = 0;
    for (size_t b = 0; b < kBlocks; ++b) {
      if (At(phase, b, 1) > 0 && (first == 0 || At(phase, b, 1) < first)) first = At(phase, b, 1);
    }
    return first;
  }
  void Add(size_t phase, double begin, double next, Sum* s) const {
    double input = 0;
    double sums = 0;
    double end = 0;
    double last_start = 0;
    double last_end = 0;
    int blocks = 0;
    int ended = 0;
    std::map<long, int> sms;
    for (size_t b = 0; b < kBlocks; ++b) {
      if (At(phase, b, 3) == 0) continue;
      ++blocks;
      last_start = std::max(last_start, At(phase, b, 0) - begin);
      input += At(phase, b, 2) - At(phase, b, 1);
      sums += At(phase, b, 3) - At(phase, b, 2);
      ++sms[std::lround(At(phase, b, 5) * 1000)];
      if (At(phase, b, 4) == 0) continue;  // another block finished its outputs
      ++ended;
      last_end = std::max(last_end, At(phase, b, 4) - begin);
      end += At(phase, b, 4) - At(phase, b, 3);
    }
    if (blocks == 0) return;
    ++s->count;
    s->whole += next - begin;
    s->input += input / blocks;
    s->sums += sums / blocks;
    s->end += ended > 0 ? end / ended : 0;
    s->last_start += last_start;
    s->last_end += last_end;
    s->doubled += blocks - static_cast<double>(sms.size());
  }

 private:
  std::vector<unsigned long long> marks_;
};

}  // namespace

void PrintPhases(SyntheticModel& model, const std::function<void()>& tick) {
  auto* const cuda_stream = dynamic_cast<cuda::CudaStream*>(&model.stream());
  if (cuda_stream == nullptr) return;  // another backend
  cuda::CudaStream& stream = *cuda_stream;
  if (!stream.StartTrace().ok()) return;
  constexpr int kTicks = 8;
  constexpr int kWarmUp = 2;
  std::map<std::string, Sum> kinds;
  for (int i = 0; i < kTicks; ++i) {
    tick();
    const Marks marks(stream.ReadTrace());
    if (i < kWarmUp) continue;
    const std::vector<std::string> lines = stream.DescribeLastRecording();
    for (size_t phase = 0; phase + 1 < lines.size(); ++phase) {
      const double begin = marks.BeginOf(phase);
      double next = marks.BeginOf(phase + 1);
      // A phase without marks counts to the one before.
      if (next == 0 && phase + 2 < lines.size()) next = marks.BeginOf(phase + 2);
      if (begin > 0 && next > 0) marks.Add(phase, begin, next, &kinds[lines[phase]]);
    }
  }
  for (const auto& [line, s] : kinds) {
    if (s.count == 0) continue;
    std::printf(
        "%3d x %6.2f us (mean input %5.2f sums %5.2f end %5.2f; last start %6.2f, last end %6.2f, blocks beside "
        "another %4.1f) %s\n",
        s.count / (kTicks - kWarmUp), s.whole / s.count, s.input / s.count, s.sums / s.count, s.end / s.count,
        s.last_start / s.count, s.last_end / s.count, s.doubled / s.count, line.c_str());
  }
  std::fflush(stdout);
}

}  // namespace voxrt::bench
