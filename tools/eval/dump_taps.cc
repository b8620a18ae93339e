// Writes what the engine computes for a short signal at every tap into a safetensors file, on any backend and for any
// model file: what tools/reference/check_full_transformers.py compares with transformers.
//
//   dump_taps --model PATH --out FILE [--backend cpu] [--threads N] [--kv-type fp32|bf16|int8] [--delay-ms 480]
//             [--audio FILE | --seconds 3 --seed 1] [--ticks-per-call 1]
//
// The signal is --audio (its first --seconds where given), or a made one. --ticks-per-call 1 runs live ticks; more run
// the encoder as for long queues. Tensors of the file, F32 [rows, columns] unless said otherwise: pcm [samples], mel,
// conv, encoder.LAYER, encoder (after the last norm), adapter, decoder.LAYER (residual stream), logits (of the
// positions that give a token), tokens_in I32 [positions], tokens I32 [logits rows]; metadata: what was run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "audio/mel.h"
#include "audio/source.h"
#include "backend/registry.h"
#include "engine/model_runner.h"
#include "text/tekken.h"
#include "weights/safetensors_writer.h"

namespace voxrt::engine {
namespace {

constexpr double kMostSeconds = 60.0;  // every tap is kept in memory

struct Options {
  std::string model;
  std::string out;
  std::string backend = "cpu";
  std::string kv_type;
  std::string audio;
  int threads = 0;
  int delay_ms = 480;
  double seconds = 0.0;
  uint32_t seed = 1;
  int64_t ticks_per_call = 1;
};

[[noreturn]] void Fail(const std::string& message, int code) {
  std::fprintf(stderr, "dump_taps: %s\n", message.c_str());
  std::exit(code);
}

template <typename T>
T Need(Result<T> result) {
  if (!result.ok()) Fail(result.status().message(), 1);
  return std::move(result).value();
}

void Need(const Status& status) {
  if (!status.ok()) Fail(status.message(), 1);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) Fail(flag + " needs a value", 2);
    const std::string value = argv[i + 1];
    if (flag == "--model")
      options.model = value;
    else if (flag == "--out")
      options.out = value;
    else if (flag == "--backend")
      options.backend = value;
    else if (flag == "--kv-type")
      options.kv_type = value;
    else if (flag == "--audio")
      options.audio = value;
    else if (flag == "--threads")
      options.threads = std::atoi(value.c_str());
    else if (flag == "--delay-ms")
      options.delay_ms = std::atoi(value.c_str());
    else if (flag == "--seconds")
      options.seconds = std::atof(value.c_str());
    else if (flag == "--seed")
      options.seed = static_cast<uint32_t>(std::atoi(value.c_str()));
    else if (flag == "--ticks-per-call")
      options.ticks_per_call = std::atoi(value.c_str());
    else
      Fail("unknown option " + flag, 2);
  }
  if (options.model.empty() || options.out.empty()) Fail("--model PATH and --out FILE are needed", 2);
  if (options.delay_ms % model::kTickMs != 0 || options.delay_ms < model::kTickMs ||
      options.delay_ms > model::kTickMs * model::kMaxDelayTokens)
    Fail(fmt::format("--delay-ms is {}; choose a multiple of 80 from 80 to 2400", options.delay_ms), 2);
  if (options.ticks_per_call < 1 || options.ticks_per_call > 256)
    Fail(fmt::format("--ticks-per-call is {}; choose 1 to 256", options.ticks_per_call), 2);
  if (!(options.seconds >= 0.0 && options.seconds <= kMostSeconds))
    Fail(fmt::format("--seconds is {}; choose up to {}", options.seconds, kMostSeconds), 2);
  return options;
}

// Swept and gated tones with some noise: every mel band moves.
std::vector<float> MakeSignal(double seconds, uint32_t seed) {
  constexpr double kTurn = 2.0 * 3.14159265358979323846;
  std::mt19937 bits(seed);
  std::vector<float> samples(static_cast<size_t>(seconds * 16000.0));
  for (size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / 16000.0;
    const double gate = std::sin(kTurn * 3.0 * t) > 0.0 ? 0.2 : 0.0;
    const double noise = static_cast<double>(bits()) / 4294967296.0 - 0.5;
    const double tone = 0.3 * std::sin(kTurn * (200.0 * t + 150.0 * t * std::sin(kTurn * 0.7 * t))) +
                        gate * std::sin(kTurn * (1500.0 + 40.0 * (seed % 50)) * t);
    samples[i] = static_cast<float>(tone * (0.5 + 0.5 * std::sin(kTurn * 1.3 * t)) + 0.05 * noise);
  }
  return samples;
}

std::vector<float> ReadSamples(const Options& options) {
  if (options.audio.empty()) return MakeSignal(options.seconds > 0.0 ? options.seconds : 3.0, options.seed);
  auto source = Need(audio::OpenFile(options.audio, {}));
  const auto most = static_cast<size_t>((options.seconds > 0.0 ? options.seconds : kMostSeconds) * 16000.0);
  std::vector<float> samples;
  std::vector<float> block(16000);
  while (samples.size() < most) {
    const size_t count = Need(source->Read(block));
    if (count == 0) break;
    samples.insert(samples.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
  }
  samples.resize(std::min(samples.size(), most));
  return samples;
}

struct Rows {
  int64_t cols = 0;
  std::vector<float> values;
};

// Collects the rows of every tap, call after call. The taps of a stack's layers come in order: they are counted.
class Collector : public backend::TapSink {
 public:
  Collector(int encoder_layers, int decoder_layers)
      : layers_{{"encoder_layer", encoder_layers}, {"decoder_layer", decoder_layers}} {}
  // The decoder's last layer is the tap "decoder" too.
  bool Wants(std::string_view name) const override { return name != "decoder"; }
  void Take(std::string_view name, int64_t rows, int64_t cols, const float* values) override {
    std::string key(name);
    if (const auto layers = layers_.find(key); layers != layers_.end()) {
      const int layer = next_[key]++ % layers->second;
      key = fmt::format("{}.{:02}", name.substr(0, name.find('_')), layer);
    }
    Rows& taken_rows = taken[key];
    taken_rows.cols = cols;
    taken_rows.values.insert(taken_rows.values.end(), values, values + rows * cols);
  }
  std::map<std::string, Rows> taken;

 private:
  std::map<std::string, int> layers_;
  std::map<std::string, int> next_;
};

struct Tokens {
  std::vector<int32_t> in;   // fed to every position
  std::vector<int32_t> out;  // from the last position of the prompt on
};

// Greedy decoding of the padded signal's mel rows.
Tokens Decode(ModelRunner& runner, const text::Tekken& tekken, const std::vector<float>& mel, int delay,
              int64_t ticks_per_call) {
  constexpr int64_t kTickFloats = int64_t{8} * 128;
  const int64_t positions = static_cast<int64_t>(mel.size()) / kTickFloats;
  const int64_t prompt = 1 + tekken.left_pad_tokens() + delay;
  Tokens tokens;
  for (int64_t first = 0; first < positions; first += ticks_per_call) {
    const int64_t ticks = std::min(ticks_per_call, positions - first);
    Need(runner.Reserve(0, first + ticks, first + ticks));
    const EncodeItem encode{.first_tick = first, .ticks = ticks, .mel = mel.data() + first * kTickFloats};
    if (ticks_per_call > 1) Need(runner.Encode({&encode, 1}));
    for (int64_t p = first; p < first + ticks; ++p) {
      const int32_t input = p == 0 ? tekken.bos() : p < prompt ? tekken.pad() : tokens.out.back();
      tokens.in.push_back(input);
      const DecodeItem decode{.first_index = p,
                              .delay_tokens = delay,
                              .tokens = {&input, 1},
                              .audio_row = p - first,
                              .head_begin = p >= prompt - 1 ? 0 : 1};
      DecodeOutput output;
      Need(ticks_per_call > 1 ? runner.Decode({&decode, 1}, true, &output)
                              : runner.LiveTick({&encode, 1}, {&decode, 1}, true, &output));
      tokens.out.insert(tokens.out.end(), output.tokens.begin(), output.tokens.end());
    }
  }
  return tokens;
}

void Write(const Options& options, const std::vector<std::pair<std::string, std::string>>& metadata,
           const std::vector<float>& samples, const Tokens& tokens, const std::map<std::string, Rows>& taps) {
  const auto length = [](const auto& values) { return static_cast<int64_t>(values.size()); };
  std::vector<weights::TensorPlan> plans = {{"pcm", quant::DType::kF32, {length(samples)}},
                                            {"tokens_in", quant::DType::kI32, {length(tokens.in)}},
                                            {"tokens", quant::DType::kI32, {length(tokens.out)}}};
  std::vector<std::span<const std::byte>> bytes = {
      std::as_bytes(std::span(samples)), std::as_bytes(std::span(tokens.in)), std::as_bytes(std::span(tokens.out))};
  for (const auto& [name, rows] : taps) {
    plans.push_back({name, quant::DType::kF32, {length(rows.values) / rows.cols, rows.cols}});
    bytes.push_back(std::as_bytes(std::span(rows.values)));
  }
  auto writer = Need(weights::SafetensorsWriter::Create(options.out, plans, {.metadata = metadata, .sync = false}));
  for (size_t i = 0; i < bytes.size(); ++i) Need(writer->Write(i, 0, bytes[i]));
  Need(writer->Finish());
}

quant::DType KvType(const std::string& name, quant::DType fallback) {
  if (name.empty()) return fallback;
  if (name == "fp32") return quant::DType::kF32;
  if (name == "bf16") return quant::DType::kBF16;
  if (name == "int8") return quant::DType::kI8;
  Fail("--kv-type is " + name + "; choose fp32, bf16 or int8", 2);
}

void Run(const Options& options) {
  const auto device = Need(backend::OpenDevice(options.backend, {.threads = options.threads}));
  weights::OpenOptions open;
  open.threads = options.threads;
  const auto checkpoint = Need(weights::Checkpoint::Open(options.model, open));
  const text::Tekken tekken = Need(text::Tekken::Parse(checkpoint->tekken_json()));
  const auto model = std::shared_ptr(Need(model::Model::Create(checkpoint, *device)));
  const auto runner = Need(ModelRunner::Create(checkpoint, model, *device,
                                               {.max_encode_ticks = options.ticks_per_call,
                                                .kv_dtype = KvType(options.kv_type, device->info().default_kv_dtype)}));
  const int delay = options.delay_ms / model::kTickMs;
  Need(model->delays().Ensure(delay));

  const std::vector<float> samples = ReadSamples(options);
  if (samples.empty()) Fail("no audio", 1);
  std::vector<float> padded(static_cast<size_t>(tekken.left_pad_tokens()) * 1280, 0.0f);
  padded.insert(padded.end(), samples.begin(), samples.end());
  padded.resize(padded.size() + (1280 - samples.size() % 1280) % 1280 + 1280 * static_cast<size_t>(delay + 11), 0.0f);
  audio::MelStream stream{audio::MelOptions{}};
  std::vector<float> mel;
  stream.Push(padded, &mel);
  stream.Finish(&mel);

  const weights::ModelConfig& config = checkpoint->config();
  Collector taps(config.encoder.layers, config.decoder.layers);
  runner->stream().SetTapSink(&taps);
  const Tokens tokens = Decode(*runner, tekken, mel, delay, options.ticks_per_call);
  const std::vector<std::pair<std::string, std::string>> metadata = {
      {"backend", options.backend},
      {"device", device->info().description},
      {"kv_type", options.kv_type.empty() ? "default" : options.kv_type},
      {"delay_tokens", std::to_string(delay)},
      {"left_pad_tokens", std::to_string(tekken.left_pad_tokens())},
      {"ticks_per_call", std::to_string(options.ticks_per_call)},
  };
  Write(options, metadata, samples, tokens, taps.taken);
  fmt::print("{}: {} positions, {} tokens, {} taps, {} on {}\n", options.out, tokens.in.size(), tokens.out.size(),
             taps.taken.size(), options.model, device->info().description);
}

}  // namespace
}  // namespace voxrt::engine

int main(int argc, char** argv) {
  voxrt::engine::Run(voxrt::engine::Parse(argc, argv));
  return 0;
}
