// Products alone: a chain of them over different matrices, more than any cache holds, as a device runs the products of
// a model's layers. Prints JSON, one object per line. See kUsage.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "backend/registry.h"
#include "backend/stream.h"
#include "gpu_program.h"
#include "gpu_weights.h"

namespace voxrt::bench {
namespace {

constexpr const char* kUsage =
    "usage: gpu_chain [--shapes 3072x9216,18432x3072,6144x3072,3072x4096,10240x1280,1280x5120]\n"
    "                 [--formats int4,int8,bf16] [--rows 1,8,64,1024] [--matrices 64] [--MB 400] [--read-TBps R]\n"
    "                 [--seconds S] [--tiny] [--backend cuda]\n"
    "One Run of Linear operations on at least --matrices different matrices of at least --MB megabytes in all: on a "
    "GPU a\n"
    "graph of dependent phases. Shapes are outputs x inputs; int4 has groups of 128 in tile order, int8 a scale per "
    "row.\n"
    "Runs follow each other without a wait for at least 20 ms; the median of seven such spans is given: time of a "
    "product,\n"
    "its weights (scales included) over time, and multiply-adds over time.\n"
    "  --read-TBps  measured read bandwidth (gpu_probe), which the share is of; without it the device's nominal "
    "bandwidth\n"
    "  --seconds    begins nothing new after S seconds\n"
    "  --tiny, --backend NAME  small matrices, another backend: to try this program without a GPU\n";

using backend::View;

struct Shape {
  int64_t outputs = 0, inputs = 0;
};

struct Options {
  std::vector<Shape> shapes;
  std::vector<std::string> formats;
  std::vector<int> rows;
  int64_t matrices = 0;
  double bytes = 0, read_bytes_per_s = 0, seconds = 0;
};

class Chains {
 public:
  Chains(Options options, backend::Device& device, double begin_ms)
      : o_(std::move(options)), device_(device), begin_ms_(begin_ms) {}

  int Run() {
    for (const std::string& format : o_.formats) {
      int64_t most_bytes = 0;
      int64_t most_scales = 0;
      for (const Shape& s : o_.shapes) {
        most_bytes = std::max(most_bytes, 2 * s.outputs * s.inputs);
        most_scales = std::max(most_scales, s.outputs * (s.inputs / 32 + 1));
      }
      RandomWeights weights(most_bytes, most_scales, format == "bf16");
      for (const Shape& shape : o_.shapes) {
        if (!Late() && !Good(Chain(&weights, format, shape))) return 1;
      }
    }
    return 0;
  }

 private:
  bool Late() const { return NowMs() - begin_ms_ > o_.seconds * 1000; }

  static quant::Format FormatOf(const std::string& name) {
    if (name == "bf16") return {.kind = quant::FormatKind::kFloat, .dtype = quant::DType::kBF16};
    if (name == "int8") return {.kind = quant::FormatKind::kInt8, .group = 0};
    return {.kind = quant::FormatKind::kInt4Tile, .group = 128};
  }

  Status Chain(RandomWeights* random, const std::string& format, const Shape& shape) {
    std::vector<std::unique_ptr<backend::PreparedLinear>> weights;
    int64_t bytes = 0;
    while (static_cast<int64_t>(weights.size()) < o_.matrices || static_cast<double>(bytes) < o_.bytes) {
      VOXRT_ASSIGN_OR_RETURN(
          weights.emplace_back(),
          random->Prepare(device_,
                          {.name = "chain", .format = FormatOf(format), .rows = {shape.outputs}, .cols = shape.inputs},
                          &bytes));
    }
    const int64_t most_rows = *std::max_element(o_.rows.begin(), o_.rows.end());
    const quant::DType act = device_.info().activation_dtype;
    VOXRT_ASSIGN_OR_RETURN(const auto x, device_.Allocate(most_rows, shape.inputs, act));
    VOXRT_ASSIGN_OR_RETURN(const auto out, device_.Allocate(most_rows, shape.outputs, act));
    VOXRT_RETURN_IF_ERROR(FillInput(*random, x->view()));
    // The smallest session state that a stream accepts: its caches are never used.
    const backend::KvSpec kv{.layers = 1,
                             .kv_heads = 1,
                             .head_dim = 64,
                             .window = 4,
                             .max_rows = 4,
                             .dtype = device_.info().default_kv_dtype};
    VOXRT_ASSIGN_OR_RETURN(
        const std::unique_ptr<backend::SessionState> state,
        device_.CreateSessionState({.max_sessions = 1, .encoder = kv, .decoder = kv, .conv_channels = {1, 1}}));
    VOXRT_ASSIGN_OR_RETURN(const std::unique_ptr<backend::Stream> stream,
                           device_.CreateStream({.max_encoder_rows = most_rows, .state = state.get()}));
    for (const int rows : o_.rows) {
      if (Late()) return {};
      const auto values = static_cast<size_t>(rows) * 32;
      stream->SetPlan(backend::PlanId::kEncoder, {.groups = {{.slot = 0, .row_begin = 0, .row_count = rows}},
                                                  .rows = rows,
                                                  .rope_cos = std::vector<float>(values, 1.0f),
                                                  .rope_sin = std::vector<float>(values, 0.0f),
                                                  .token = {},
                                                  .audio_row = {},
                                                  .delay_row = {},
                                                  .head_rows = {}});
      const auto run = [&] {
        stream->Run({.kind = backend::RunKind::kEncode, .encoder_rows = rows}, [&](backend::Stream& s) {
          for (const auto& weight : weights) {
            s.Linear({.x = x->view().Rows(0, rows), .weight = weight.get(), .out = out->view().Rows(0, rows)});
          }
        });
      };
      VOXRT_ASSIGN_OR_RETURN(const double run_ms, MedianRun(*stream, run));
      Report(format, shape, rows, static_cast<int64_t>(weights.size()), bytes, run_ms);
    }
    return {};
  }

  // Values between -1 and 1.
  Status FillInput(const RandomWeights& random, const View& x) {
    const auto count = static_cast<size_t>(x.rows * x.cols);
    std::vector<float> floats(count);
    for (size_t i = 0; i < count; ++i) floats[i] = random.Small(i) * 40.0f;
    if (x.dtype == quant::DType::kF32) return device_.Write(x, floats.data());
    std::vector<uint16_t> halves(count);
    for (size_t i = 0; i < count; ++i) halves[i] = quant::F32ToBF16(floats[i]);
    return device_.Write(x, halves.data());
  }

  static Result<double> MedianRun(backend::Stream& stream, const std::function<void()>& run) {
    constexpr double kSpanMs = 20;
    constexpr int kSpans = 7;
    // The first loads kernels and records, the second shows how many make a span.
    run();
    VOXRT_RETURN_IF_ERROR(stream.Sync());
    const double begin = NowMs();
    run();
    VOXRT_RETURN_IF_ERROR(stream.Sync());
    const int count = 1 + static_cast<int>(kSpanMs / std::max(NowMs() - begin, 1e-3));
    std::vector<double> spans;
    for (int i = 0; i < kSpans; ++i) {
      const double span_begin = NowMs();
      for (int j = 0; j < count; ++j) run();
      VOXRT_RETURN_IF_ERROR(stream.Sync());
      spans.push_back((NowMs() - span_begin) / count);
    }
    return Percentile(spans, 0.5);
  }

  void Report(const std::string& format, const Shape& shape, int64_t rows, int64_t matrices, int64_t bytes,
              double run_ms) const {
    const double bytes_per_s = static_cast<double>(bytes) / run_ms * 1000;
    const bool measured = o_.read_bytes_per_s > 0;
    const double peak = measured ? o_.read_bytes_per_s : static_cast<double>(device_.info().memory_bytes_per_s);
    const std::string share =
        peak > 0 ? fmt::format(", \"{}\": {:.3f}", measured ? "share_of_read" : "share_of_nominal", bytes_per_s / peak)
                 : "";
    const auto flops = 2.0 * static_cast<double>(shape.outputs * shape.inputs * rows * matrices);
    fmt::print(
        "{{\"chain\": \"{}x{}\", \"format\": \"{}\", \"rows\": {}, \"matrices\": {}, \"MB_each\": {:.2f}, "
        "\"us_per_product\": {:.2f}, \"TBps\": {:.3f}{}, \"TFLOPs\": {:.1f}}}\n",
        shape.outputs, shape.inputs, format, rows, matrices,
        static_cast<double>(bytes) / static_cast<double>(matrices) / 1e6, run_ms * 1000 / static_cast<double>(matrices),
        bytes_per_s / 1e12, share, flops / run_ms / 1e9);
    std::fflush(stdout);
  }

  Options o_;
  backend::Device& device_;
  double begin_ms_;
};

bool ParseShapes(const std::vector<std::string>& texts, std::vector<Shape>* shapes) {
  for (const std::string& text : texts) {
    long long outputs = 0;
    long long inputs = 0;
    int used = 0;
    const int found = std::sscanf(text.c_str(), "%lldx%lld%n", &outputs, &inputs, &used);
    // What int4 in tile order needs.
    if (found != 2 || static_cast<size_t>(used) != text.size() || outputs < 8 || inputs < 128 || outputs % 8 != 0 ||
        inputs % 128 != 0) {
      std::fprintf(stderr, "cannot use shape %s, expected outputs x inputs: multiples of 8 and of 128\n", text.c_str());
      return false;
    }
    shapes->push_back({outputs, inputs});
  }
  return true;
}

int Main(int argc, char** argv) {
  const double begin = NowMs();
  Arguments arguments(argc, argv, {"--tiny"});
  Options o;
  const bool tiny = arguments.Flag("--tiny");
  const std::vector<std::string> shapes = arguments.List(
      "--shapes", tiny ? "256x512,512x128" : "3072x9216,18432x3072,6144x3072,3072x4096,10240x1280,1280x5120");
  o.formats = arguments.List("--formats", "int4,int8,bf16");
  o.rows = arguments.Numbers("--rows", "1,8,64,1024");
  o.matrices = static_cast<int64_t>(arguments.Number("--matrices", 64));
  o.bytes = arguments.Number("--MB", tiny ? 1 : 400) * 1e6;
  o.read_bytes_per_s = arguments.Number("--read-TBps", 0) * 1e12;
  o.seconds = arguments.Number("--seconds", 1e9);
  const std::string backend = arguments.Text("--backend", "cuda");
  int code = 0;
  if (!arguments.Done(kUsage, &code)) return code;
  for (const std::string& format : o.formats) {
    if (format == "int4" || format == "int8" || format == "bf16") continue;
    std::fprintf(stderr, "cannot use --formats %s\n%s", format.c_str(), kUsage);
    return 2;
  }
  if (!ParseShapes(shapes, &o.shapes)) return 2;
  std::unique_ptr<backend::Device> device;
  if (!OpenDevice(backend, &device)) return 0;
  return Chains(std::move(o), *device, begin).Run();
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) { return voxrt::bench::Main(argc, argv); }
