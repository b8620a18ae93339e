// Times live ticks of a full-size synthetic model on a GPU: isolated ticks, from the upload of the mel rows to the
// token on the host, and the parts (encoder, decoder) alone. Prints one JSON object per line. See kUsage.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "backend/cuda/stream.h"
#include "gpu_phases.h"
#include "gpu_program.h"

namespace voxrt::bench {
namespace {

constexpr const char* kUsage =
    "usage: gpu_step [--batches 1,16,64] [--w 1000] [--weights int4|bf16] [--kv bf16,int8] [--steps 300]\n"
    "                [--seconds S] [--check] [--phases] [--no-time] [--plain-edges] [--tiny] [--backend cuda]\n"
    "  --check    first: a stream in a batch has the bits of the stream alone, and all values are finite\n"
    "  --phases   table of phases\n"
    "  --seconds  begins nothing new after S seconds\n"
    "  --tiny, --backend NAME  a small model, another backend: to try this program without a GPU\n";

struct Options {
  std::vector<int> batches, windows;
  std::vector<std::string> caches;
  bool bf16 = false, check = false, phases = false, time = true, plain_edges = false, tiny = false;
  std::string backend;
  int steps = 0;
  double seconds = 0;
};

bool Parse(int argc, char** argv, Options* o, int* code) {
  Arguments arguments(argc, argv, {"--check", "--phases", "--no-time", "--tiny", "--plain-edges"});
  o->batches = arguments.Numbers("--batches", "1");
  o->windows = arguments.Numbers("--w", "1000");
  o->caches = arguments.List("--kv", "bf16");
  o->bf16 = arguments.OneOf("--weights", {"int4", "bf16"}) == "bf16";
  o->steps = std::max(10, static_cast<int>(arguments.Number("--steps", 300)));
  o->seconds = arguments.Number("--seconds", 1e9);
  o->check = arguments.Flag("--check");
  o->phases = arguments.Flag("--phases");
  o->time = !arguments.Flag("--no-time");
  o->tiny = arguments.Flag("--tiny");
  o->plain_edges = arguments.Flag("--plain-edges");
  o->backend = arguments.Text("--backend", "cuda");
  return arguments.Done(kUsage, code);
}

class Bench {
 public:
  Bench(Options options, std::unique_ptr<SyntheticModel> model)
      : o_(std::move(options)), model_(std::move(model)), begin_(NowMs()) {}

  int Run() {
    for (const std::string& kv : o_.caches) {
      if (!Start(kv == "int8" ? quant::DType::kI8 : quant::DType::kBF16)) return 1;
      if (o_.check && !Late() && !Check(kv)) return 1;
      for (const int w : o_.windows) {
        if (Late() || !Fill(w)) continue;
        for (const int batch : o_.batches)
          if (o_.time && !Late()) Time(kv, w, batch);
        // Last: marks slow a stream down from then on.
        for (const int batch : o_.batches)
          if (o_.phases && !Late()) Phases(kv, w, batch);
        if (o_.phases && !Start(kv == "int8" ? quant::DType::kI8 : quant::DType::kBF16)) return 1;
      }
    }
    return 0;
  }

 private:
  bool Late() const { return NowMs() - begin_ > o_.seconds * 1000; }

  // New caches and a stream on them.
  bool Start(quant::DType kv) {
    if (!Good(model_->Restart(kv))) return false;
    auto* stream = dynamic_cast<cuda::CudaStream*>(&model_->stream());
    if (stream != nullptr) stream->SetPlainEdges(o_.plain_edges);  // null: another backend
    tick_ = 0;
    return true;
  }

  static std::vector<SyntheticModel::Row> Rows(int batch, int64_t tick) {
    std::vector<SyntheticModel::Row> rows;
    rows.reserve(static_cast<size_t>(batch));
    for (int slot = 0; slot < batch; ++slot) rows.push_back({slot, tick});
    return rows;
  }

  // Ticks one at a time; the clock runs from the first call to the token on the host. Returns false when the GPU
  // failed.
  bool TimeTicks(int batch, int steps, bool encoder, bool decoder, std::vector<double>* times) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < steps; ++i, ++tick_) {
      model_->Prepare(Rows(batch, tick_));
      const double begin = NowMs();
      model_->RunPrepared(encoder, decoder);
      const Status status = decoder ? model_->Tokens(&tokens) : model_->stream().Sync();
      const double end = NowMs();
      if (!Good(status) || !Good(model_->stream().Sync())) return false;
      if (times != nullptr) times->push_back(end - begin);
    }
    return true;
  }

  // Session 0 lives through w - 100 real ticks, the others continue as it.
  bool Fill(int w) {
    const int64_t wanted = std::max(w - 100, 10);
    if (tick_ > wanted) {
      for (int slot = 0; slot < model_->config().max_sessions; ++slot) model_->state().Clear(slot);
      tick_ = 0;
    }
    if (!Good(Age(*model_, tick_, wanted, model_->config().max_sessions))) return false;
    tick_ = filled_ = wanted;
    return true;
  }

  void Time(const std::string& kv, int w, int batch) {
    const int steps = o_.steps / (batch >= 32 ? 4 : batch >= 8 ? 2 : 1);
    tick_ = filled_;
    std::vector<double> whole;
    std::vector<double> encoder;
    std::vector<double> decoder;
    if (!TimeTicks(batch, 4, true, true, nullptr) ||  // graphs and clocks
        !TimeTicks(batch, steps, true, true, &whole) || !TimeTicks(batch, 2, true, false, nullptr) ||
        !TimeTicks(batch, steps / 4 + 1, true, false, &encoder) || !TimeTicks(batch, 2, false, true, nullptr) ||
        !TimeTicks(batch, steps / 4 + 1, false, true, &decoder)) {
      std::exit(1);  // the device is lost
    }
    fmt::print(
        "{{\"batch\": {}, \"w\": {}, \"weights\": \"{}\", \"kv\": \"{}\", \"step_ms_p50\": {:.4f}, \"p90\": {:.4f}, "
        "\"p99\": {:.4f}, \"encoder_ms\": {:.4f}, \"decoder_ms\": {:.4f}}}\n",
        batch, w, o_.bf16 ? "bf16" : "int4 g128, head 8w", kv, Percentile(whole, 0.5), Percentile(whole, 0.9),
        Percentile(whole, 0.99), Percentile(encoder, 0.5), Percentile(decoder, 0.5));
    std::fflush(stdout);
  }

  void Phases(const std::string& kv, int w, int batch) {
    tick_ = filled_;
    fmt::print("phases of batch {}, w {}, kv {}\n", batch, w, kv);
    PrintPhases(*model_, [&] { TimeTicks(batch, 1, true, true, nullptr); });
  }

  // Hidden rows and tokens of ticks from `first` for these sessions from cleared state.
  bool Record(int batch, int64_t first, std::vector<float>* hidden, std::vector<int32_t>* tokens) {
    constexpr int kCheckTicks = 3;
    for (int slot = 0; slot < batch; ++slot) model_->state().Clear(slot);
    tick_ = first;
    std::vector<int32_t> t;
    std::vector<float> h;
    for (int i = 0; i < kCheckTicks; ++i) {
      if (!TimeTicks(batch, 1, true, true, nullptr) || !model_->Tokens(&t).ok() || !model_->Hidden(batch, &h).ok())
        return false;
      hidden->insert(hidden->end(), h.begin(), h.end());
      tokens->insert(tokens->end(), t.begin(), t.end());
    }
    return true;
  }

  // Session 0 of every batch is the session alone.
  bool Check(const std::string& kv) {
    const int most = *std::max_element(o_.batches.begin(), o_.batches.end());
    const auto dim = static_cast<size_t>(model_->config().decoder.dim);
    std::vector<float> alone;
    std::vector<int32_t> tokens_alone;
    bool finite = true;
    std::string differing;  // batch:tick by how much
    for (const int batch : {1, 4, 16, 64}) {
      if (batch > most) break;
      std::vector<float> hidden;
      std::vector<int32_t> tokens;
      if (!Record(batch, 0, &hidden, &tokens)) return false;
      for (const float v : hidden) finite = finite && std::isfinite(v);
      if (batch == 1) alone = hidden, tokens_alone = tokens;
      for (size_t tick = 0; tick < tokens_alone.size(); ++tick) {
        const size_t row = tick * static_cast<size_t>(batch);
        float difference = tokens[row] == tokens_alone[tick] ? 0.0f : 1.0f;
        for (size_t d = 0; d < dim; ++d)
          difference = std::max(difference, std::fabs(hidden[row * dim + d] - alone[tick * dim + d]));
        if (difference != 0.0f)
          differing += fmt::format("{}{}:{} by {}", differing.empty() ? "" : ", ", batch, tick, difference);
      }
    }
    fmt::print("{{\"check\": \"{}\", \"finite\": {}, \"batch_is_alone\": {}, \"differing\": \"{}\"}}\n", kv, finite,
               differing.empty(), differing);
    std::fflush(stdout);
    tick_ = 0;
    return finite && differing.empty();
  }

  Options o_;
  std::unique_ptr<SyntheticModel> model_;
  double begin_;
  int64_t tick_ = 0;
  int64_t filled_ = 0;  // ticks that all sessions have behind them
};

int Main(int argc, char** argv) {
  Options o;
  int code = 0;
  if (!Parse(argc, argv, &o, &code)) return code;
  SyntheticConfig config;
  const int most = *std::max_element(o.batches.begin(), o.batches.end());
  if (o.tiny) MakeTiny(&config);
  config.max_sessions = most;
  config.max_encoder_rows = 4 * most;
  config.max_decoder_rows = most;
  if (o.bf16)
    config.linear = config.head = quant::Format{.kind = quant::FormatKind::kFloat, .dtype = quant::DType::kBF16};
  OpenModel opened;
  if (!Open(o.backend, config, &opened, &code)) return code;
  return Bench(o, std::move(opened.model)).Run();
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) { return voxrt::bench::Main(argc, argv); }
