// Times live ticks of a full-size synthetic model on a GPU: isolated ticks, from the upload of the mel rows to the
// token on the host, and the parts (encoder, decoder) alone. usage: gpu_step [cuda] [batches, e.g. 1,16,64] [w, e.g.
// 1000] [bf16|int4] [kv: bf16|int8] [steps] [phases]. Prints one JSON object per line.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "backend/cuda/stream.h"
#include "backend/registry.h"
#include "gpu_model.h"

namespace voxrt::bench {
namespace {

double Now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<int> Numbers(const std::string& text) {
  std::vector<int> values;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) values.push_back(std::atoi(part.c_str()));
  return values;
}

struct Times {
  double p50, p90, p99;
};
Times Percentiles(std::vector<double> t) {
  std::sort(t.begin(), t.end());
  return {t[t.size() / 2], t[t.size() * 9 / 10], t[t.size() * 99 / 100]};
}

// Ticks one at a time; the clock runs from the first call to the token on the host.
Times TimeTicks(SyntheticModel& model, int batch, int64_t* tick, int steps, bool encoder, bool decoder) {
  std::vector<double> times;
  std::vector<int32_t> tokens;
  for (int i = 0; i < steps; ++i, ++*tick) {
    std::vector<SyntheticModel::Row> rows;
    for (int slot = 0; slot < batch; ++slot) rows.push_back({slot, *tick});
    const double begin = Now();
    model.Tick(rows, encoder, decoder);
    const Status status = decoder ? model.Tokens(&tokens) : model.stream().Sync();
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      std::exit(1);
    }
    times.push_back(Now() - begin);
    const Status synced = model.stream().Sync();
    if (!synced.ok()) std::exit(1);
  }
  times.erase(times.begin(), times.begin() + steps / 10);
  return Percentiles(times);
}

// Mean times of the phases of a tick, by kind, from marks inside the kernels (block 0): from the end of the phase
// before to its input being ready, its sums, its end; and the distance to the next phase's start of work.
void PrintPhases(SyntheticModel& model, int batch, int64_t* tick) {
  auto& stream = dynamic_cast<cuda::CudaStream&>(model.stream());
  if (!stream.StartTrace().ok()) return;
  struct Sum {
    int count = 0;
    double whole = 0, input = 0, sums = 0, end = 0, last_start = 0, spread = 0, doubled = 0;
  };
  std::map<std::string, Sum> kinds;
  constexpr int kTicks = 12;
  constexpr size_t kBlocks = cuda_kernels::kTraceBlocks, kMarks = cuda_kernels::kTraceMarks;
  for (int i = 0; i < kTicks; ++i) {
    TimeTicks(model, batch, tick, 1, true, true);
    const std::vector<unsigned long long> marks = stream.ReadTrace();
    const std::vector<std::string> lines = stream.DescribeLastRecording();
    auto at = [&](size_t phase, size_t block, size_t mark) {
      return static_cast<double>(marks[(phase * kBlocks + block) * kMarks + mark] % 1000000000000ull) / 1000.0;
    };
    if (i < 3) continue;
    // When the wait of a phase is over: its first block's mark.
    auto begin_of = [&](size_t phase) {
      double first = 0;
      for (size_t b = 0; b < kBlocks; ++b) {
        if (at(phase, b, 1) > 0 && (first == 0 || at(phase, b, 1) < first)) first = at(phase, b, 1);
      }
      return first;
    };
    for (size_t phase = 0; phase + 1 < lines.size(); ++phase) {
      const double begin = begin_of(phase);
      double next = begin_of(phase + 1);
      if (next == 0 && phase + 2 < lines.size())
        next = begin_of(phase + 2);  // a phase without marks counts to this one
      if (begin == 0 || next == 0) continue;
      Sum& s = kinds[lines[phase]];
      double last_end = 0;
      double last_start = 0;
      double input = 0;
      double sums = 0;
      double end = 0;
      int blocks = 0;
      std::map<int, int> sms;
      for (size_t b = 0; b < kBlocks; ++b) {
        if (at(phase, b, 4) == 0) continue;
        ++blocks;
        last_end = std::max(last_end, at(phase, b, 4) - begin);
        last_start = std::max(last_start, at(phase, b, 0) - begin);
        input += at(phase, b, 2) - at(phase, b, 1);
        sums += at(phase, b, 3) - at(phase, b, 2);
        end += at(phase, b, 4) - at(phase, b, 3);
        ++sms[static_cast<int>(at(phase, b, 5) * 1000 + 0.5)];
      }
      if (blocks == 0) continue;
      ++s.count;
      s.whole += next - begin;
      s.input += input / blocks;
      s.sums += sums / blocks;
      s.end += end / blocks;
      s.last_start += last_start;
      s.spread += last_end;
      s.doubled += blocks - static_cast<double>(sms.size());
    }
  }
  for (const auto& [line, s] : kinds) {
    std::fprintf(stderr,
                 "%3d x %6.2f us (mean input %5.2f sums %5.2f end %5.2f; last start %6.2f, last end %6.2f, blocks "
                 "beside another %4.1f) %s\n",
                 s.count / (kTicks - 3), s.whole / s.count, s.input / s.count, s.sums / s.count, s.end / s.count,
                 s.last_start / s.count, s.spread / s.count, s.doubled / s.count, line.c_str());
  }
}

int Main(int argc, char** argv) {
  const std::vector<int> batches = Numbers(argc > 2 ? argv[2] : "1");
  const std::vector<int> windows = Numbers(argc > 3 ? argv[3] : "1000");
  const bool bf16 = argc > 4 && std::strcmp(argv[4], "bf16") == 0;
  const bool int8 = argc > 5 && std::strcmp(argv[5], "int8") == 0;
  const int steps = argc > 6 ? std::atoi(argv[6]) : 300;
  const bool phases = argc > 7;
  auto device = backend::OpenDevice(argc > 1 ? argv[1] : "cuda", {});
  if (!device.ok()) {
    std::printf("{\"skipped\": \"%s\"}\n", device.status().message().c_str());
    return 0;
  }
  SyntheticConfig config;
  const int most = *std::max_element(batches.begin(), batches.end());
  config.max_sessions = most;
  config.max_encoder_rows = 4 * most;
  config.max_decoder_rows = most;
  if (int8) config.kv = quant::DType::kI8;
  if (bf16)
    config.linear = config.head = quant::Format{.kind = quant::FormatKind::kFloat, .dtype = quant::DType::kBF16};
  const double load_begin = Now();
  auto made = SyntheticModel::Create(**device, config);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().message().c_str());
    return 1;
  }
  SyntheticModel& model = **made;
  dynamic_cast<cuda::CudaStream&>(model.stream()).SetPlainEdges(argc > 8);
  const SyntheticBytes& bytes = model.bytes();
  fmt::print(
      "{{\"device\": \"{}\", \"load_s\": {:.2f}, \"encoder_MB\": {:.1f}, \"decoder_MB\": {:.1f}, \"head_MB\": "
      "{:.1f}}}\n",
      (*device)->info().description, (Now() - load_begin) / 1000, static_cast<double>(bytes.encoder_weights) / 1e6,
      static_cast<double>(bytes.decoder_weights) / 1e6, static_cast<double>(bytes.head_weights) / 1e6);
  for (const int w : windows) {
    for (const int batch : batches) {
      int64_t tick = 0;
      // Fill what time allows with real rows, then move on to the wanted position.
      TimeTicks(model, batch, &tick, std::min(w, 100), true, true);
      tick = std::max<int64_t>(tick, w - steps);
      const Times whole = TimeTicks(model, batch, &tick, steps, true, true);
      if (phases) PrintPhases(model, batch, &tick);
      const Times encoder = TimeTicks(model, batch, &tick, steps / 3, true, false);
      const Times decoder = TimeTicks(model, batch, &tick, steps / 3, false, true);
      fmt::print(
          "{{\"batch\": {}, \"w\": {}, \"weights\": \"{}\", \"kv\": \"{}\", \"step_ms_p50\": {:.4f}, \"p90\": {:.4f}, "
          "\"p99\": {:.4f}, "
          "\"encoder_ms\": {:.4f}, \"decoder_ms\": {:.4f}}}\n",
          batch, w, bf16 ? "bf16" : "int4 g128, head 8w", int8 ? "int8" : "bf16", whole.p50, whole.p90, whole.p99,
          encoder.p50, decoder.p50);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) { return voxrt::bench::Main(argc, argv); }
