// Whole passes with random weights: what an engine asks of the backend per call, without the engine.
//   Encode  stem, encoder layers, adapter over `rows` encoder rows
//   Decode  embedding, decoder layers, head over `rows` decoder rows
#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "micro_cpu.h"

namespace voxrt::bench {
namespace {

using backend::AttentionShape;
using backend::BatchPlan;
using backend::Buffer;
using backend::Epilogue;
using backend::LinearRole;
using backend::PlanId;
using backend::Stream;
using backend::View;
using quant::DType;

struct StackDims {
  int layers;
  int64_t dim;
  AttentionShape shape;
  int64_t hidden;
  int64_t window;
};
struct ModelDims {
  const char* name;
  StackDims encoder;
  StackDims decoder;
  int64_t vocab;
};
constexpr ModelDims kDemo = {"demo", {8, 256, {4, 4, 64}, 1024, 150}, {4, 256, {4, 2, 128}, 768, 128}, 4096};
constexpr ModelDims kFull = {"full", {32, 1280, {32, 32, 64}, 5120, 750}, {26, 3072, {32, 8, 128}, 9216, 8192}, 131072};

struct Layer {
  Layer(const quant::Format& format, const StackDims& dims)
      : qkv(format, (dims.shape.heads + 2 * dims.shape.kv_heads) * dims.shape.head_dim, dims.dim, LinearRole::kPlain),
        output(format, dims.dim, int64_t{dims.shape.heads} * dims.shape.head_dim, LinearRole::kPlain),
        gate_up(format, 2 * dims.hidden, dims.dim, LinearRole::kGateUp),
        down(format, dims.dim, dims.hidden, LinearRole::kPlain),
        gain(NewBuffer(1, dims.dim, DType::kF32)) {}
  RandomLinear qkv;
  RandomLinear output;
  RandomLinear gate_up;
  RandomLinear down;
  std::unique_ptr<Buffer> gain;
};

// One stack of layers with its scratch and session state, used at growing positions.
class Stack {
 public:
  Stack(const quant::Format& format, const StackDims& dims, PlanId id, int64_t rows, int64_t first_index)
      : dims_(dims), id_(id), rows_(rows), next_(first_index) {
    for (int i = 0; i < dims.layers; ++i) layers_.push_back(std::make_unique<Layer>(format, dims));
    x_ = NewBuffer(rows, dims.dim, DType::kF32);
    normed_ = NewBuffer(rows, dims.dim, DType::kF32);
    qkv_ = NewBuffer(rows, (dims.shape.heads + 2 * dims.shape.kv_heads) * dims.shape.head_dim, DType::kF32);
    attended_ = NewBuffer(rows, int64_t{dims.shape.heads} * dims.shape.head_dim, DType::kF32);
    hidden_ = NewBuffer(rows, dims.hidden, DType::kF32);
  }

  backend::KvSpec kv(DType dtype) const {
    return {.layers = dims_.layers,
            .kv_heads = dims_.shape.kv_heads,
            .head_dim = dims_.shape.head_dim,
            .window = dims_.window,
            .max_rows = id_ == PlanId::kEncoder ? 4 : 8,
            .dtype = dtype};
  }
  BatchPlan NextPlan() {
    BatchPlan plan;
    plan.rows = static_cast<int32_t>(rows_);
    plan.groups = {{.slot = 0, .row_begin = 0, .row_count = plan.rows, .first_index = next_}};
    plan.rope_cos.resize(static_cast<size_t>(rows_ * dims_.shape.head_dim / 2), 0.8f);
    plan.rope_sin.resize(plan.rope_cos.size(), 0.6f);
    next_ += rows_;
    return plan;
  }
  void Emit(Stream& s) {
    for (int i = 0; i < dims_.layers; ++i) {
      const Layer& layer = *layers_[static_cast<size_t>(i)];
      s.AttentionInput({.plan = id_,
                        .layer = i,
                        .shape = dims_.shape,
                        .x = x_->view(),
                        .gain = layer.gain->view(),
                        .qkv_weight = layer.qkv.prepared(),
                        .normed = normed_->view(),
                        .qkv = qkv_->view()});
      s.AttentionOutput({.plan = id_,
                         .layer = i,
                         .shape = dims_.shape,
                         .qkv = qkv_->view(),
                         .attended = attended_->view(),
                         .output_weight = layer.output.prepared(),
                         .x = x_->view()});
      s.FeedForwardInput({.x = x_->view(),
                          .gain = layer.gain->view(),
                          .scales = {},
                          .gate_up = layer.gate_up.prepared(),
                          .normed = normed_->view(),
                          .hidden = hidden_->view()});
      s.Linear(
          {.x = hidden_->view(), .weight = layer.down.prepared(), .out = x_->view(), .epilogue = Epilogue::kAddTo});
    }
  }
  void ResetX() {  // the residual stream would grow without end
    auto* x = static_cast<float*>(x_->view().data);
    for (int64_t i = 0; i < rows_ * dims_.dim; ++i) x[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  }
  double Bytes() const {
    double bytes = 0.0;
    for (const auto& l : layers_) bytes += l->qkv.bytes() + l->output.bytes() + l->gate_up.bytes() + l->down.bytes();
    return bytes;
  }
  double Operations() const {  // linear layers and attention over a full window (or what there is of it)
    double weights = 0.0;
    for (const auto& l : layers_) {
      for (const RandomLinear* w : {&l->qkv, &l->output, &l->gate_up, &l->down}) {
        weights += static_cast<double>(w->rows() * w->cols());
      }
    }
    const double visible = static_cast<double>(std::min(dims_.window, next_));
    return static_cast<double>(rows_) *
           (2.0 * weights + 4.0 * visible * dims_.layers * dims_.shape.heads * dims_.shape.head_dim);
  }
  const View& x() const { return x_->view(); }
  const View& normed() const { return normed_->view(); }
  const View& gain() const { return layers_[0]->gain->view(); }
  int64_t next() const { return next_; }

 private:
  StackDims dims_;
  PlanId id_;
  int64_t rows_;
  int64_t next_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> normed_;
  std::unique_ptr<Buffer> qkv_;
  std::unique_ptr<Buffer> attended_;
  std::unique_ptr<Buffer> hidden_;
};

void Reserve(backend::SessionState& state, const Stack& encoder, const Stack& decoder) {
  VOXRT_CHECK(state.Reserve(0, backend::KvId::kEncoder, encoder.next()).ok());
  VOXRT_CHECK(state.Reserve(0, backend::KvId::kDecoder, decoder.next()).ok());
}

// A tick with `encoder_rows` encoder rows and `decoder_rows` decoder rows; 0 leaves a stack out.
void Pass(benchmark::State& bench, const ModelDims& model, const quant::Format& format, int64_t encoder_rows,
          int64_t decoder_rows, int64_t context) {
  constexpr int64_t kMelBins = 128;
  const StackDims none = {0, 256, {1, 1, 64}, 64, 1};
  Stack encoder(format, encoder_rows > 0 ? model.encoder : none, PlanId::kEncoder, std::max<int64_t>(encoder_rows, 4),
                4 * context);
  Stack decoder(format, decoder_rows > 0 ? model.decoder : none, PlanId::kDecoder, std::max<int64_t>(decoder_rows, 1),
                context);
  StreamRig rig({.max_sessions = 1,
                 .encoder = encoder.kv(DType::kF32),
                 .decoder = decoder.kv(DType::kF32),
                 .conv_channels = {kMelBins, model.encoder.dim}},
                std::max<int64_t>(encoder_rows, 4), std::max<int64_t>(decoder_rows, 1));
  const quant::Format bf16{.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16};
  const std::vector<uint16_t> conv_weight(static_cast<size_t>(model.encoder.dim * model.encoder.dim * 3), 0x3c00);
  const std::vector<float> conv_bias(static_cast<size_t>(model.encoder.dim), 0.1f);
  std::unique_ptr<backend::PreparedConv> convs[2];
  for (int i = 0; i < 2; ++i) {
    auto made = CpuDevice().PrepareConv({.name = "conv",
                                         .weight = conv_weight.data(),
                                         .dtype = DType::kBF16,
                                         .out_channels = model.encoder.dim,
                                         .in_channels = i == 0 ? kMelBins : model.encoder.dim,
                                         .stride = i + 1,
                                         .bias = conv_bias});
    VOXRT_CHECK(made.ok());
    convs[i] = std::move(made).value();
  }
  const RandomLinear adapter0(format, model.decoder.dim, 4 * model.encoder.dim, LinearRole::kPlain);
  const RandomLinear adapter1(format, model.decoder.dim, model.decoder.dim, LinearRole::kPlain);
  const RandomLinear head(decoder_rows > 0 ? format : bf16, decoder_rows > 0 ? model.vocab : 16, model.decoder.dim,
                          LinearRole::kHead);
  const int64_t ticks = std::max<int64_t>(encoder_rows / 4, 1);
  const auto mel = NewBuffer(8 * ticks, kMelBins, DType::kF32);
  const auto conv = NewBuffer(8 * ticks, model.encoder.dim, DType::kF32);
  const auto projected = NewBuffer(ticks, model.decoder.dim, DType::kF32);
  const auto audio = NewBuffer(std::max(ticks, decoder_rows), model.decoder.dim, DType::kF32);
  const auto token = NewBuffer(std::max<int64_t>(decoder_rows, 1), 1, DType::kI32);

  const bool full = &model == &kFull;
  const double read_before = full ? RefreshReadBandwidth() : 0.0;
  const auto pass = [&] {
    BatchPlan encoder_plan = encoder.NextPlan();
    BatchPlan decoder_plan = decoder.NextPlan();
    for (int32_t r = 0; r < decoder_rows; ++r) {
      decoder_plan.token.push_back(r);
      decoder_plan.audio_row.push_back(r);
      decoder_plan.delay_row.push_back(0);
      decoder_plan.head_rows.push_back(r);
    }
    Reserve(*rig.state, encoder, decoder);
    encoder.ResetX();
    rig.stream->SetPlan(PlanId::kEncoder, encoder_plan);
    rig.stream->SetPlan(PlanId::kDecoder, decoder_plan);
    rig.stream->Run(
        {.encoder_rows = encoder_rows, .decoder_rows = decoder_rows, .head_rows = decoder_rows}, [&](Stream& s) {
          if (encoder_rows > 0) {
            s.CausalConv1d(
                {.index = 0, .weight = convs[0].get(), .rows_per_plan_row = 2, .x = mel->view(), .out = conv->view()});
            s.CausalConv1d(
                {.index = 1, .weight = convs[1].get(), .rows_per_plan_row = 2, .x = conv->view(), .out = encoder.x()});
            encoder.Emit(s);
            s.RmsNorm({.x = encoder.x(), .gain = encoder.gain(), .scales = {}, .out = encoder.normed()});
            const View stacked{encoder.normed().data, DType::kF32, ticks, 4 * model.encoder.dim, 4 * model.encoder.dim};
            s.Linear(
                {.x = stacked, .weight = adapter0.prepared(), .out = projected->view(), .epilogue = Epilogue::kGelu});
            s.Linear({.x = projected->view(), .weight = adapter1.prepared(), .out = audio->view().Rows(0, ticks)});
          }
          if (decoder_rows > 0) {
            s.Embed({.table = head.prepared(), .audio = audio->view(), .out = decoder.x()});
            decoder.Emit(s);
            s.Head({.x = decoder.x(),
                    .gain = decoder.gain(),
                    .weight = head.prepared(),
                    .normed = decoder.normed(),
                    .logits = {},
                    .token = token->view()});
          }
        });
  };
  pass();  // touches the caches' pages and the scratch memory for the first time
  std::vector<double> seconds;
  for (auto _ : bench) {
    const auto start = std::chrono::steady_clock::now();
    pass();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  double bytes = 0.0;
  double operations = 0.0;
  if (encoder_rows > 0) {
    bytes += encoder.Bytes() + adapter0.bytes() + adapter1.bytes();
    operations +=
        encoder.Operations() +
        2.0 * static_cast<double>(ticks * (adapter0.rows() * adapter0.cols() + adapter1.rows() * adapter1.cols()));
    operations += 6.0 * static_cast<double>(8 * ticks * model.encoder.dim * kMelBins +
                                            4 * ticks * model.encoder.dim * model.encoder.dim);
  }
  if (decoder_rows > 0) {
    bytes += decoder.Bytes() + head.bytes();
    operations += decoder.Operations() + 2.0 * static_cast<double>(decoder_rows * head.rows() * head.cols());
  }
  if (full) MachineRoofline().read_bytes_per_s = (read_before + RefreshReadBandwidth()) / 2;  // shares against the mean
  ReportRates(bench, bytes, operations);
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2), seconds.end());
  bench.counters["p50_ms"] = seconds[seconds.size() / 2] * 1e3;
  if (full) {
    bench.counters["read_GB/s_around"] = MachineRoofline().read_bytes_per_s / 1e9;
    bench.counters["p50/floor"] = seconds[seconds.size() / 2] * MachineRoofline().read_bytes_per_s / bytes;
  }
  const double ticks_done =
      encoder_rows > 0 ? static_cast<double>(encoder_rows) / 4 : static_cast<double>(decoder_rows);
  bench.counters["ticks/s"] =
      benchmark::Counter(ticks_done * static_cast<double>(bench.iterations()), benchmark::Counter::kIsRate);
}

void Register(const std::string& name, const ModelDims& model, const quant::Format& format, int64_t encoder_rows,
              int64_t decoder_rows, int64_t context) {
  if (!CpuDevice().Supports(format)) return;
  auto* b = benchmark::RegisterBenchmark(
      (name + "/" + model.name + "/" + FormatName(format)).c_str(),
      [=, &model](benchmark::State& state) { Pass(state, model, format, encoder_rows, decoder_rows, context); });
  b->UseRealTime()->Unit(benchmark::kMillisecond);
  if (&model == &kFull) b->Iterations(24);  // making gigabytes of weights takes longer than the passes
}

}  // namespace

void RegisterStacks() {
  std::vector<quant::Format> formats = {{.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16}};
  for (bool int8_activations : {true, false}) {
    formats.push_back({.kind = quant::FormatKind::kInt4, .group = 32, .int8_activations = int8_activations});
    formats.push_back({.kind = quant::FormatKind::kInt8, .group = 0, .int8_activations = int8_activations});
  }
  for (const quant::Format& format : formats) {
    Register("Encode_512", kDemo, format, 512, 0, 400);
    Register("Decode_1", kDemo, format, 0, 1, 400);
    Register("Decode_4", kDemo, format, 0, 4, 400);
    Register("Encode_4", kDemo, format, 4, 0, 400);
    Register("Live_4_1", kDemo, format, 4, 1, 400);
    Register("Decode_1", kFull, format, 0, 1, 100);
    Register("Decode_4", kFull, format, 0, 4, 100);
    Register("Decode_8", kFull, format, 0, 8, 100);
    Register("Encode_4", kFull, format, 4, 0, 200);
    Register("Live_4_1", kFull, format, 4, 1, 200);
  }
}

}  // namespace voxrt::bench
