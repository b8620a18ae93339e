// Files at full size on a GPU: one file with and without guessed pads, many files in lock-step, and the parts of that
// (decoder passes, long encoder calls) alone. Prints JSON, one object per line. See kUsage.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "gpu_program.h"

namespace voxrt::bench {
namespace {

constexpr const char* kUsage =
    "usage: gpu_offline [--parts passes,file,many,encoder] [--weights int4|bf16] [--kv bf16|int8] [--seconds S]\n"
    "                   [--rows 1,2,4,8] [--w 1000] [--file-s 160] [--ticks 128,512] [--tokens bench/demo_tokens.txt]\n"
    "                   [--calls 64,128,256,512,1024,2048,4096] [--files 256] [--files-s 60] [--files-ticks 16]\n"
    "                   [--tiny] [--backend cuda]\n"
    "  passes   one decoder pass of M rows (--rows) of one session with w positions before them, and its cost in "
    "passes\n"
    "           of the first M\n"
    "  file     one file of --file-s seconds as the engine works through it: encoder calls of --ticks ticks, each "
    "followed\n"
    "           by passes of up to M rows over its audio rows, row 0 with the last token and the others with a guessed "
    "pad.\n"
    "           A pass counts up to the first token that is no pad; which those are is read from --tokens, over and "
    "over\n"
    "  encoder  long calls of one session with a full cache (--calls ticks each, 4 rows a tick) and, where there is "
    "memory,\n"
    "           of --files sessions; FLOPs of convolutions, products and attention (rows times visible keys) over "
    "time\n"
    "  many     --files files of --files-s seconds in lock-step: encoder calls of --files-ticks ticks of every file, "
    "then a\n"
    "           pass with one row of each file for each of them\n"
    "The clock stands while mel rows and plans of encoder calls are made; it runs for those of the decoder. Prompt "
    "and\n"
    "padding are left out: positions begin at 0, each with a token. The decoder's window is as long as the longest "
    "file.\n"
    "  --seconds  begins nothing new after S seconds; a run in lock-step ends where it is and tells how far it came\n"
    "  --tiny, --backend NAME  a small model, another backend: to try this program without a GPU\n";

constexpr double kTickSeconds = 0.08;

struct Options {
  std::vector<std::string> parts;
  std::vector<int> rows, ticks, calls;
  int64_t w = 0, file_ticks = 0, files = 0, files_ticks = 0, files_call = 0;
  std::string tokens;
  double seconds = 0;
};

using EncodeItem = SyntheticModel::EncodeItem;
using DecodeItem = SyntheticModel::DecodeItem;

double Flops(const SyntheticConfig& c, bool attention) {  // of one tick in the encoder and adapter, caches full
  const SyntheticConfig::Stack& e = c.encoder;
  const auto heads = static_cast<double>(e.heads * e.head_dim);
  const auto dim = static_cast<double>(e.dim);
  if (attention) return 4.0 * e.layers * 4.0 * heads * static_cast<double>(e.window);
  const double qkv = dim * static_cast<double>((e.heads + 2 * e.kv_heads) * e.head_dim);
  const double layer = qkv + heads * dim + 3.0 * dim * static_cast<double>(e.hidden);
  const double convolutions = 3.0 * dim * (8.0 * static_cast<double>(c.mel_bins) + 4.0 * dim);
  const auto to = static_cast<double>(c.decoder.dim);
  return 2.0 * (4.0 * e.layers * layer + convolutions + 4.0 * dim * to + to * to);
}

class Offline {
 public:
  Offline(Options options, std::string pads, SyntheticModel& model, double begin_ms)
      : o_(std::move(options)), pads_(std::move(pads)), model_(model), begin_ms_(begin_ms) {}

  int Run() {
    for (const std::string& part : o_.parts) {
      const bool good = part == "passes" ? Passes() : part == "file" ? Files() : part == "encoder" ? Encoder() : Many();
      if (!good) return 1;
    }
    return 0;
  }

 private:
  bool Late() const { return NowMs() - begin_ms_ > o_.seconds * 1000; }

  void Clear(int64_t sessions) {
    for (int slot = 0; slot < sessions; ++slot) model_.state().Clear(slot);
  }

  // The time of one encoder call to its end.
  bool Encode(const std::vector<EncodeItem>& items, double* ms) {
    model_.PrepareEncode(items);
    const double begin = NowMs();
    model_.RunPrepared(true, false);
    const Status status = model_.stream().Sync();
    *ms += NowMs() - begin;
    return Good(status);
  }

  // The time of one decoder pass from its plan to the tokens on the host.
  bool Decode(const std::vector<DecodeItem>& items, double* ms) {
    const double begin = NowMs();
    model_.PrepareDecode(items);
    model_.RunPrepared(false, true);
    const Status status = model_.Tokens(&tokens_);
    *ms += NowMs() - begin;
    return Good(status);
  }

  bool Passes() {
    if (Late()) return true;
    Clear(1);
    if (!Good(Age(model_, 0, o_.w, 1))) return false;
    double first = 0;
    for (const int rows : o_.rows) {
      constexpr int kPasses = 200;
      constexpr int kWarmUp = 4;
      std::vector<double> times;
      for (int i = 0; i < kWarmUp + kPasses; ++i) {
        double ms = 0;
        // Always the same positions: rows that are not accepted are overwritten.
        if (!Decode({{.slot = 0, .first = o_.w, .rows = rows}}, &ms)) return false;
        if (i >= kWarmUp) times.push_back(ms);
      }
      const double p50 = Percentile(times, 0.5);
      if (first == 0) first = p50;
      fmt::print("{{\"pass_rows\": {}, \"w\": {}, \"ms_p50\": {:.4f}, \"p99\": {:.4f}, \"cost\": {:.3f}}}\n", rows,
                 o_.w, p50, Percentile(times, 0.99), p50 / first);
      std::fflush(stdout);
    }
    return true;
  }

  // Rows of a pass at `position` that count: those up to the first token that is no pad.
  int64_t Accepted(int64_t position, int64_t rows) const {
    for (int64_t row = 0; row < rows; ++row) {
      if (pads_[static_cast<size_t>(position + row) % pads_.size()] != '.') return row + 1;
    }
    return rows;
  }

  bool Files() {
    for (const int ticks : o_.ticks) {
      for (const int rows : o_.rows) {
        if (Late()) return true;
        if (!File(std::min<int64_t>(ticks, o_.file_ticks), rows)) return false;
      }
    }
    return true;
  }

  bool File(int64_t call, int64_t most_rows) {
    double encode_ms = 0;
    // Graphs and scratch: every shape of call twice.
    for (int i = 0; i < 2; ++i) {
      if (!Encode({{.slot = 0, .ticks = call}}, &encode_ms)) return false;
      for (int64_t rows = 1; rows <= most_rows; ++rows) {
        double unused = 0;
        if (!Decode({{.slot = 0, .first = 0, .rows = rows}}, &unused)) return false;
      }
    }
    Clear(1);
    encode_ms = 0;
    double decode_ms = 0;
    int64_t passes = 0;
    for (int64_t begin = 0; begin < o_.file_ticks; begin += call) {
      const int64_t ticks = std::min(call, o_.file_ticks - begin);
      if (!Encode({{.slot = 0, .first_tick = begin, .ticks = ticks}}, &encode_ms)) return false;
      for (int64_t at = 0; at < ticks; ++passes) {
        const int64_t rows = std::min(most_rows, ticks - at);
        if (!Decode({{.slot = 0, .first = begin + at, .rows = rows, .audio_row = at}}, &decode_ms)) return false;
        at += Accepted(begin + at, rows);
      }
    }
    const auto total = static_cast<double>(o_.file_ticks);
    const auto pass_count = static_cast<double>(passes);
    fmt::print(
        "{{\"file_s\": {:.1f}, \"ticks_per_call\": {}, \"pass_rows\": {}, \"x_realtime\": {:.1f}, \"s_per_audio_s\": "
        "{:.6f}, \"encode_ms_per_tick\": {:.4f}, \"decode_ms_per_tick\": {:.4f}, \"pass_ms\": {:.4f}, \"passes\": {}, "
        "\"tokens_per_pass\": {:.3f}}}\n",
        total * kTickSeconds, call, most_rows, total * kTickSeconds * 1000 / (encode_ms + decode_ms),
        (encode_ms + decode_ms) / 1000 / (total * kTickSeconds), encode_ms / total, decode_ms / total,
        decode_ms / pass_count, passes, total / pass_count);
    std::fflush(stdout);
    return true;
  }

  std::vector<EncodeItem> Everyone(int64_t sessions, int64_t first_tick, int64_t ticks) const {
    std::vector<EncodeItem> items;
    for (int slot = 0; slot < sessions; ++slot) items.push_back({slot, first_tick, ticks});
    return items;
  }

  bool Encoder() {
    for (const int ticks : o_.calls) {
      if (!Late() && !EncoderCalls(1, ticks)) return false;
    }
    return Late() || EncoderCalls(o_.files, o_.files_call);
  }

  bool EncoderCalls(int64_t sessions, int64_t ticks) {
    const SyntheticConfig& c = model_.config();
    Clear(sessions);
    int64_t tick = 0;
    double fill_ms = 0;
    for (; 4 * tick < c.encoder.window || tick < 2 * ticks; tick += ticks) {  // the first calls load kernels
      if (!Encode(Everyone(sessions, tick, ticks), &fill_ms)) return false;
    }
    std::vector<double> times;
    const double begin = NowMs();
    while (times.size() < 3 || (times.size() < 100 && NowMs() - begin < 1000)) {
      double ms = 0;
      if (!Encode(Everyone(sessions, tick, ticks), &ms)) return false;
      tick += ticks;
      times.push_back(ms);
    }
    const double p50 = Percentile(times, 0.5);
    const auto all = static_cast<double>(sessions * ticks);
    const double products = Flops(c, false) * all / 1e9;
    const double attention = Flops(c, true) * all / 1e9;
    fmt::print(
        "{{\"encoder_sessions\": {}, \"ticks_per_call\": {}, \"rows\": {}, \"ms_p50\": {:.3f}, \"ms_per_tick\": "
        "{:.5f}, \"x_realtime\": {:.0f}, \"products_GFLOP\": {:.1f}, \"attention_GFLOP\": {:.1f}, \"TFLOPs\": "
        "{:.1f}}}\n",
        sessions, ticks, 4 * sessions * ticks, p50, p50 / all, all * kTickSeconds * 1000 / p50, products, attention,
        (products + attention) / p50);
    std::fflush(stdout);
    return true;
  }

  bool Many() {
    if (Late()) return true;
    double unused = 0;
    std::vector<DecodeItem> rows;
    for (int slot = 0; slot < o_.files; ++slot) rows.push_back({.slot = slot});
    for (int i = 0; i < 2; ++i) {
      if (!Encode(Everyone(o_.files, 0, o_.files_call), &unused) || !Decode(rows, &unused)) return false;
    }
    Clear(o_.files);
    double encode_ms = 0;
    double decode_ms = 0;
    int64_t tick = 0;
    while (tick < o_.files_ticks && !Late()) {
      const int64_t ticks = std::min(o_.files_call, o_.files_ticks - tick);
      if (!Encode(Everyone(o_.files, tick, ticks), &encode_ms)) return false;
      for (int64_t at = 0; at < ticks; ++at) {
        for (DecodeItem& row : rows) row.first = tick + at, row.audio_row = row.slot * ticks + at;
        if (!Decode(rows, &decode_ms)) return false;
      }
      tick += ticks;
    }
    const auto done = static_cast<double>(tick);
    const double audio_s = done * kTickSeconds * static_cast<double>(o_.files);
    fmt::print(
        "{{\"files\": {}, \"files_s\": {:.1f}, \"done_s\": {:.1f}, \"mean_w\": {:.0f}, \"ticks_per_call\": {}, "
        "\"x_realtime\": {:.0f}, \"encode_s\": {:.2f}, \"decode_s\": {:.2f}, \"encode_ms_per_tick\": {:.5f}, "
        "\"pass_ms\": {:.3f}}}\n",
        o_.files, static_cast<double>(o_.files_ticks) * kTickSeconds, done * kTickSeconds, done / 2, o_.files_call,
        audio_s * 1000 / std::max(encode_ms + decode_ms, 1e-9), encode_ms / 1000, decode_ms / 1000,
        encode_ms / std::max(done * static_cast<double>(o_.files), 1.0), decode_ms / std::max(done, 1.0));
    std::fflush(stdout);
    return true;
  }

  Options o_;
  std::string pads_;  // of the recorded tokens: '.' is a pad
  SyntheticModel& model_;
  double begin_ms_;
  std::vector<int32_t> tokens_;
};

std::string ReadPads(const std::string& path) {
  std::ifstream file(path);
  std::string pads;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) pads += line;
  }
  return pads.find_first_not_of(".x") == std::string::npos ? pads : "";
}

int Main(int argc, char** argv) {
  const double begin = NowMs();
  Arguments arguments(argc, argv, {"--tiny"});
  Options o;
  o.parts = arguments.List("--parts", "passes,file,many,encoder");
  const bool bf16 = arguments.OneOf("--weights", {"int4", "bf16"}) == "bf16";
  const bool int8 = arguments.OneOf("--kv", {"bf16", "int8"}) == "int8";
  o.seconds = arguments.Number("--seconds", 1e9);
  o.rows = arguments.Numbers("--rows", "1,2,4,8");
  o.w = static_cast<int64_t>(arguments.Number("--w", 1000));
  o.file_ticks = static_cast<int64_t>(arguments.Number("--file-s", 160) / kTickSeconds);
  o.ticks = arguments.Numbers("--ticks", "128,512");
  o.tokens = arguments.Text("--tokens", "bench/demo_tokens.txt");
  o.calls = arguments.Numbers("--calls", "64,128,256,512,1024,2048,4096");
  o.files = static_cast<int64_t>(arguments.Number("--files", 256));
  o.files_ticks = static_cast<int64_t>(arguments.Number("--files-s", 60) / kTickSeconds);
  o.files_call = static_cast<int64_t>(arguments.Number("--files-ticks", 16));
  const bool tiny = arguments.Flag("--tiny");
  const std::string backend = arguments.Text("--backend", "cuda");
  int code = 0;
  if (!arguments.Done(kUsage, &code)) return code;
  const std::vector<std::string> known = {"passes", "file", "many", "encoder"};
  for (const std::string& part : o.parts) {
    if (std::find(known.begin(), known.end(), part) != known.end()) continue;
    std::fprintf(stderr, "cannot use --parts %s\n%s", part.c_str(), kUsage);
    return 2;
  }
  if (o.w < 1 || o.file_ticks < 1 || o.files < 1 || o.files_ticks < 1 || o.files_call < 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const std::string pads = ReadPads(o.tokens);
  if (pads.empty()) {
    std::fprintf(stderr, "%s holds no line of '.' and 'x'; name the recorded tokens with --tokens\n", o.tokens.c_str());
    return 1;
  }
  SyntheticConfig config;
  if (tiny) MakeTiny(&config);
  const auto wanted = [&o](const char* part) {
    return std::find(o.parts.begin(), o.parts.end(), part) != o.parts.end();
  };
  const auto largest = [](const std::vector<int>& values) { return *std::max_element(values.begin(), values.end()); };
  const int64_t most_rows = largest(o.rows);
  int64_t positions = o.files_ticks;
  int64_t call = 1;
  config.max_sessions = wanted("many") || wanted("encoder") ? static_cast<int>(o.files) : 1;
  if (config.max_sessions > 1) call = o.files * o.files_call;
  if (wanted("passes")) positions = std::max(positions, o.w);
  if (wanted("file")) positions = std::max(positions, o.file_ticks);
  if (wanted("file")) call = std::max<int64_t>(call, std::min<int64_t>(largest(o.ticks), o.file_ticks));
  if (wanted("encoder")) call = std::max<int64_t>(call, largest(o.calls));
  config.kv = int8 ? quant::DType::kI8 : quant::DType::kBF16;
  config.max_item_rows = most_rows;
  config.decoder.window = std::min(config.decoder.window, positions + most_rows);
  config.max_encoder_rows = 4 * call;
  config.max_decoder_rows = std::max<int64_t>(most_rows, config.max_sessions);
  if (bf16)
    config.linear = config.head = quant::Format{.kind = quant::FormatKind::kFloat, .dtype = quant::DType::kBF16};
  OpenModel opened;
  if (!Open(backend, config, &opened, &code)) return code;
  return Offline(std::move(o), pads, *opened.model, begin).Run();
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) { return voxrt::bench::Main(argc, argv); }
