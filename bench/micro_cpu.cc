// micro_cpu: every operation of the CPU backend at the shapes of the demo checkpoint and of the 4B model, as time, GB/s
// and GFLOP/s beside this machine's measured read bandwidth and FMA peak (printed first and kept in the JSON context).
//   micro_cpu --benchmark_filter=Linear --benchmark_out=result.json --benchmark_context=commit=$(git rev-parse --short
//   HEAD)
#include "micro_cpu.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "backend/cpu/cpu.h"
#include "cpu_roofline.h"

namespace voxrt::bench {

Roofline& MachineRoofline() {
  static Roofline roofline;
  return roofline;
}

backend::Device& CpuDevice() {
  static std::unique_ptr<backend::Device> device = [] {
    auto opened = backend::OpenCpu({.threads = MachineRoofline().threads});
    VOXRT_CHECK(opened.ok());
    return std::move(opened).value();
  }();
  return *device;
}

double RefreshReadBandwidth() {
  base::ThreadPool pool(MachineRoofline().threads);
  return MachineRoofline().read_bytes_per_s = MeasureReadBandwidth(pool);
}

void ReportRates(benchmark::State& state, double bytes, double operations) {
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * runs / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(operations * runs / 1e9, benchmark::Counter::kIsRate);
  state.counters["read_share"] =
      benchmark::Counter(bytes * runs / MachineRoofline().read_bytes_per_s, benchmark::Counter::kIsRate);
  state.counters["fma_share"] =
      benchmark::Counter(operations * runs / MachineRoofline().fma_per_s, benchmark::Counter::kIsRate);
}

RandomLinear::RandomLinear(const quant::Format& format, int64_t rows, int64_t cols, backend::LinearRole role)
    : rows_(rows), cols_(cols) {
  const bool pair = role == backend::LinearRole::kGateUp;
  backend::LinearSpec spec{.name = "random", .role = role, .blocks = {}};
  const int64_t blocks = pair ? 2 : 1;
  uint32_t seed = static_cast<uint32_t>(rows * 31 + cols);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t block_rows = rows / blocks;
    const auto elements = static_cast<size_t>(block_rows * cols);
    const int64_t groups = format.kind == quant::FormatKind::kFloat ? 0 : format.group == 0 ? 1 : cols / format.group;
    size_t bytes = 0;
    switch (format.kind) {
      case quant::FormatKind::kFloat:
        bytes = elements * quant::DTypeBytes(format.dtype);
        break;
      case quant::FormatKind::kInt8:
        bytes = elements;
        break;
      default:
        bytes = elements / 2;
        break;
    }
    auto data = std::make_unique<std::vector<uint16_t>>(bytes / 2);
    for (uint16_t& value : *data) {
      seed = seed * 1664525u + 1013904223u;
      // bf16 values of magnitude 2^-7..2^-4; as codes any bits will do.
      value = static_cast<uint16_t>(format.kind == quant::FormatKind::kFloat ? ((seed >> 16) & 0x80ffu) | 0x3c00u
                                                                             : seed >> 16);
    }
    auto scale = std::make_unique<std::vector<uint16_t>>(static_cast<size_t>(block_rows * groups), uint16_t{0x3c00});
    bytes_ += static_cast<double>(bytes) + 2.0 * static_cast<double>(scale->size());
    spec.blocks.push_back({.weight = {.format = format,
                                      .rows = block_rows,
                                      .cols = cols,
                                      .data = data->data(),
                                      .scale = scale->empty() ? nullptr : scale->data()},
                           .bias = {}});
    memory_.push_back(std::move(data));
    memory_.push_back(std::move(scale));
  }
  auto prepared = CpuDevice().Prepare(spec);
  VOXRT_CHECK(prepared.ok());
  prepared_ = std::move(prepared).value();
}

std::unique_ptr<backend::Buffer> NewBuffer(int64_t rows, int64_t cols, quant::DType dtype) {
  auto buffer = CpuDevice().Allocate(rows, cols, dtype);
  VOXRT_CHECK(buffer.ok());
  if (dtype == quant::DType::kF32) {
    auto* values = static_cast<float*>((*buffer)->view().data);
    for (int64_t i = 0; i < rows * cols; ++i) values[i] = static_cast<float>(i * 2654435761u % 1000) * 2e-3f - 1.0f;
  }
  return std::move(buffer).value();
}

StreamRig::StreamRig(const backend::SessionStateSpec& spec, int64_t encoder_rows, int64_t decoder_rows) {
  auto made = CpuDevice().CreateSessionState(spec);
  VOXRT_CHECK(made.ok());
  state = std::move(made).value();
  auto opened = CpuDevice().CreateStream(
      {.max_encoder_rows = encoder_rows, .max_decoder_rows = decoder_rows, .state = state.get()});
  VOXRT_CHECK(opened.ok());
  stream = std::move(opened).value();
}

namespace {

constexpr double kRotateBytes = 160e6;  // well above the last-level cache

// One linear layer; weights of many layers in turn, so that they come from memory unless `cached`.
void Linear(benchmark::State& state, quant::Format format, int64_t n, int64_t k, backend::LinearRole role,
            bool cached) {
  const int64_t rows = state.range(0);
  std::vector<std::unique_ptr<RandomLinear>> weights;
  double bytes = 0.0;
  do {
    weights.push_back(std::make_unique<RandomLinear>(format, n, k, role));
    bytes += weights.back()->bytes();
  } while (!cached && bytes < kRotateBytes);
  StreamRig rig(TinyState(), 4, rows);
  const bool pair = role == backend::LinearRole::kGateUp;
  const auto x = NewBuffer(rows, k, quant::DType::kF32);
  const auto out = NewBuffer(rows, pair ? n / 2 : n, quant::DType::kF32);
  size_t next = 0;
  for (auto _ : state) {
    const auto* weight = weights[next++ % weights.size()]->prepared();
    if (pair) {
      rig.stream->LinearPair({.x = x->view(), .weight = weight, .out = out->view()});
    } else {
      rig.stream->Linear({.x = x->view(), .weight = weight, .out = out->view()});
    }
  }
  ReportRates(state, weights[0]->bytes(), 2.0 * static_cast<double>(n * k * rows));
}

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
  backend::LinearRole role;
};
constexpr Shape kFullShapes[] = {
    {"encoder_qkv", 6144, 1280, backend::LinearRole::kPlain},
    {"encoder_o", 1280, 2048, backend::LinearRole::kPlain},
    {"encoder_gate_up", 10240, 1280, backend::LinearRole::kGateUp},
    {"encoder_down", 1280, 5120, backend::LinearRole::kPlain},
    {"decoder_qkv", 6144, 3072, backend::LinearRole::kPlain},
    {"decoder_o", 3072, 4096, backend::LinearRole::kPlain},
    {"decoder_gate_up", 18432, 3072, backend::LinearRole::kGateUp},
    {"decoder_down", 3072, 9216, backend::LinearRole::kPlain},
    {"head", 131072, 3072, backend::LinearRole::kPlain},
};
constexpr Shape kDemoShapes[] = {
    {"encoder_qkv", 768, 256, backend::LinearRole::kPlain},
    {"encoder_o", 256, 256, backend::LinearRole::kPlain},
    {"encoder_gate_up", 2048, 256, backend::LinearRole::kGateUp},
    {"encoder_down", 256, 1024, backend::LinearRole::kPlain},
    {"decoder_qkv", 1024, 256, backend::LinearRole::kPlain},
    {"decoder_o", 256, 512, backend::LinearRole::kPlain},
    {"decoder_gate_up", 1536, 256, backend::LinearRole::kGateUp},
    {"decoder_down", 256, 768, backend::LinearRole::kPlain},
    {"head", 4096, 256, backend::LinearRole::kPlain},
};

void RegisterLinears() {
  std::vector<quant::Format> formats = {{.kind = quant::FormatKind::kFloat, .dtype = quant::DType::kBF16}};
  for (bool int8_activations : {true, false}) {
    formats.push_back({.kind = quant::FormatKind::kInt4, .group = 32, .int8_activations = int8_activations});
    formats.push_back({.kind = quant::FormatKind::kInt4, .group = 128, .int8_activations = int8_activations});
    formats.push_back({.kind = quant::FormatKind::kInt8, .group = 0, .int8_activations = int8_activations});
  }
  for (const quant::Format& format : formats) {
    if (!CpuDevice().Supports(format)) continue;
    for (const Shape& shape : kFullShapes) {
      const std::string name = "Linear/full/" + FormatName(format) + "/" + shape.name;
      auto* b = benchmark::RegisterBenchmark(name.c_str(), [format, shape](benchmark::State& state) {
        Linear(state, format, shape.n, shape.k, shape.role, false);
      });
      b->UseRealTime()->ArgName("rows")->Arg(1)->Arg(4)->Arg(8);
      if (shape.n < 20000) b->Arg(512);
    }
    for (const Shape& shape : kDemoShapes) {
      const std::string name = "Linear/demo/" + FormatName(format) + "/" + shape.name;
      auto* b = benchmark::RegisterBenchmark(name.c_str(), [format, shape](benchmark::State& state) {
        Linear(state, format, shape.n, shape.k, shape.role, true);
      });
      b->UseRealTime()->ArgName("rows")->Arg(1)->Arg(4)->Arg(512);
    }
  }
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) {
  using namespace voxrt::bench;
  Roofline& roofline = MachineRoofline();
  if (const char* threads = std::getenv("VOXRT_BENCH_THREADS")) roofline.threads = std::atoi(threads);
  {
    voxrt::base::ThreadPool pool(roofline.threads);
    roofline.read_bytes_per_s = MeasureReadBandwidth(pool);
    roofline.fma_per_s = MeasureFmaPeak(pool);
  }
  benchmark::AddCustomContext("device", CpuDevice().info().description);
  benchmark::AddCustomContext("read_gb_per_s", std::to_string(roofline.read_bytes_per_s / 1e9));
  benchmark::AddCustomContext("fma_gflop_per_s", std::to_string(roofline.fma_per_s / 1e9));
  RegisterLinears();
  RegisterStacks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
