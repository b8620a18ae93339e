// Live streams at their pace, without sockets: how late their tokens are when as many as this GPU should hold run
// beside each other. Prints JSON, one object per line. See kUsage.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

#include "gpu_program.h"

namespace voxrt::bench {
namespace {

constexpr const char* kUsage =
    "usage: gpu_paced [--streams 512] [--paced 60] [--w 1000] [--kv int8] [--cohorts C] [--most-batch 192]\n"
    "                 [--window W] [--weights int4|bf16] [--seconds S] [--tiny] [--backend cuda]\n"
    "Every stream first gets the caches of one that has lived for w ticks. Then, for --paced seconds of wall clock, "
    "tick\n"
    "n of stream i is due at (n + phase of i) * 80 ms: that is when its last sample is there. A loop takes the ticks "
    "that\n"
    "are due, the longest due first, at most --most-batch of them and one per stream; makes mel rows and plans, runs "
    "the\n"
    "batch as one live tick, and reads the tokens. The latency of a token is the time from due to read: waiting for "
    "the\n"
    "batch before it, the work of the host and the batch itself.\n"
    "  --cohorts     streams of a cohort are due together; without it every stream has a phase of its own\n"
    "  --most-batch  each batch size up to it is run twice before the clock starts, so that its graph is recorded. "
    "Batches\n"
    "                are not rounded to sizes\n"
    "  --window      positions that a decoder cache can hold; without it those that the run reaches (at most 8192):\n"
    "                nothing leaves the window either way, and a shorter one leaves more memory to the encoder's "
    "caches\n"
    "  --seconds     limit of the whole program: the paced part is shortened, or left out where less than 5 s are "
    "left\n"
    "  --tiny, --backend NAME  a small model, another backend: to try this program without a GPU\n"
    "Ticks that were due but not run in twice the paced time count as unserved, with the latency they have by then.\n";

constexpr double kTickMs = 80.0;

struct Options {
  int streams = 0, cohorts = 0, most_batch = 0;
  int64_t w = 0;
  double paced_s = 0, seconds = 0;
};

class Paced {
 public:
  Paced(const Options& options, SyntheticModel& model)
      : o_(options), model_(model), next_(static_cast<size_t>(options.streams), options.w) {}

  int Run(double program_begin_ms) {
    if (!Good(Age(model_, 0, o_.w, o_.streams)) || !RunSizes()) return 1;
    const double start_s = (NowMs() - program_begin_ms) / 1000;
    const double left_s = o_.seconds - start_s - 1;
    if (left_s < std::min(5.0, o_.paced_s)) {
      fmt::print("{{\"skipped\": \"the start took {:.1f} of {:.1f} s\"}}\n", start_s, o_.seconds);
      return 0;
    }
    // Twice: the time in which a backlog may be worked off.
    paced_ms_ = 1000 * std::min(o_.paced_s, std::max(left_s / 2, left_s - o_.paced_s));
    if (!Pace()) return 1;
    Report(start_s);
    return 0;
  }

 private:
  // The k-th tick in order of being due: a stream's phase rises with its number, so this is tick k / streams of stream
  // k % streams.
  double DueMs(int64_t k) const {
    const auto stream = static_cast<double>(k % o_.streams);
    const auto streams = static_cast<double>(o_.streams);
    const double phase = o_.cohorts > 0 ? std::floor(stream * o_.cohorts / streams) / o_.cohorts : stream / streams;
    const int64_t tick = k / o_.streams;
    return (static_cast<double>(tick) + phase) * kTickMs;
  }

  bool RunBatch(const std::vector<SyntheticModel::Row>& rows) {
    model_.Tick(rows);
    return Good(model_.Tokens(&tokens_));
  }

  // The largest first, so that scratch grows once. The streams do not move on: their next tick is run again and again.
  bool RunSizes() {
    std::vector<SyntheticModel::Row> rows;
    for (int slot = 0; slot < o_.most_batch; ++slot) rows.push_back({slot, o_.w});
    for (; !rows.empty(); rows.pop_back()) {
      if (!RunBatch(rows) || !RunBatch(rows)) return false;
    }
    return true;
  }

  bool Pace() {
    const auto begin = std::chrono::steady_clock::now();
    const double begin_ms = NowMs();
    std::vector<SyntheticModel::Row> rows;
    while (DueMs(taken_) < paced_ms_) {
      const double now = NowMs() - begin_ms;
      if (now > 2 * paced_ms_) break;
      if (DueMs(taken_) > now) {
        Wait(begin, DueMs(taken_));
        continue;
      }
      rows.clear();
      const int64_t first = taken_;
      while (static_cast<int>(rows.size()) < o_.most_batch && DueMs(taken_) <= now && DueMs(taken_) < paced_ms_) {
        const auto slot = static_cast<size_t>(taken_++ % o_.streams);
        rows.push_back({static_cast<int>(slot), next_[slot]++});
      }
      if (!RunBatch(rows)) return false;
      const double end = NowMs() - begin_ms;
      busy_ms_ += end - now;
      ++batches_;
      largest_ = std::max(largest_, rows.size());
      for (int64_t k = first; k < taken_; ++k) latency_.push_back(end - DueMs(k));
    }
    end_ms_ = NowMs() - begin_ms;
    for (int64_t k = taken_; DueMs(k) < paced_ms_; ++k, ++unserved_) latency_.push_back(end_ms_ - DueMs(k));
    return true;
  }

  // Sleeps while there is time, then spins: waking up late would count as latency.
  static void Wait(std::chrono::steady_clock::time_point begin, double until_ms) {
    const auto until = begin + std::chrono::duration<double, std::milli>(until_ms);
    constexpr std::chrono::microseconds kSpin(200);
    if (until - std::chrono::steady_clock::now() > kSpin) std::this_thread::sleep_until(until - kSpin);
    while (std::chrono::steady_clock::now() < until) {
    }
  }

  void Report(double start_s) {
    const auto late = std::count_if(latency_.begin(), latency_.end(), [](double ms) { return ms > kTickMs; });
    const auto served = static_cast<double>(taken_);
    fmt::print(
        "{{\"paced_streams\": {}, \"cohorts\": {}, \"most_batch\": {}, \"seconds\": {:.1f}, \"w_begin\": {}, "
        "\"w_end\": {}, \"kv\": \"{}\", \"latency_ms_p50\": {:.2f}, \"p95\": {:.2f}, \"p99\": {:.2f}, \"max\": {:.2f}, "
        "\"mean_batch\": {:.1f}, \"largest_batch\": {}, \"batch_ms_mean\": {:.2f}, \"busy_share\": {:.3f}, "
        "\"ticks\": {}, \"late_ticks\": {}, \"unserved\": {}, \"session_MB\": {:.1f}, \"start_s\": {:.1f}}}\n",
        o_.streams, o_.cohorts, o_.most_batch, paced_ms_ / 1000, o_.w, *std::max_element(next_.begin(), next_.end()),
        model_.config().kv == quant::DType::kI8 ? "int8" : "bf16", Percentile(latency_, 0.5),
        Percentile(latency_, 0.95), Percentile(latency_, 0.99), Percentile(latency_, 1),
        served / static_cast<double>(std::max<int64_t>(batches_, 1)), largest_,
        busy_ms_ / static_cast<double>(std::max<int64_t>(batches_, 1)), busy_ms_ / end_ms_, latency_.size(), late,
        unserved_, static_cast<double>(model_.state().BytesNow(0)) / 1e6, start_s);
    std::fflush(stdout);
  }

  Options o_;
  SyntheticModel& model_;
  std::vector<int64_t> next_;  // tick of each stream
  std::vector<int32_t> tokens_;
  std::vector<double> latency_;
  double paced_ms_ = 0, end_ms_ = 0, busy_ms_ = 0;
  int64_t taken_ = 0, batches_ = 0, unserved_ = 0;
  size_t largest_ = 0;
};

int Main(int argc, char** argv) {
  const double begin = NowMs();
  Arguments arguments(argc, argv, {"--tiny"});
  Options o;
  o.streams = static_cast<int>(arguments.Number("--streams", 512));
  o.paced_s = arguments.Number("--paced", 60);
  o.w = static_cast<int64_t>(arguments.Number("--w", 1000));
  o.cohorts = static_cast<int>(arguments.Number("--cohorts", 0));
  o.most_batch = std::min(static_cast<int>(arguments.Number("--most-batch", 192)), o.streams);
  o.seconds = arguments.Number("--seconds", 1e9);
  const bool tiny = arguments.Flag("--tiny");
  const bool int8 = arguments.OneOf("--kv", {"int8", "bf16"}) == "int8";
  const bool bf16 = arguments.OneOf("--weights", {"int4", "bf16"}) == "bf16";
  const auto window = static_cast<int64_t>(arguments.Number("--window", 0));
  const std::string backend = arguments.Text("--backend", "cuda");
  int code = 0;
  if (!arguments.Done(kUsage, &code)) return code;
  if (o.streams < 1 || o.most_batch < 1 || o.w < 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  SyntheticConfig config;
  if (tiny) MakeTiny(&config);
  const auto reached = o.w + static_cast<int64_t>(o.paced_s * 1000 / kTickMs) + 2;
  config.decoder.window = window > 0 ? window : std::min(config.decoder.window, reached);
  config.kv = int8 ? quant::DType::kI8 : quant::DType::kBF16;
  config.max_sessions = o.streams;
  config.max_encoder_rows = int64_t{4} * o.most_batch;
  config.max_decoder_rows = o.most_batch;
  if (bf16)
    config.linear = config.head = quant::Format{.kind = quant::FormatKind::kFloat, .dtype = quant::DType::kBF16};
  OpenModel opened;
  if (!Open(backend, config, &opened, &code)) return code;
  return Paced(o, *opened.model).Run(begin);
}

}  // namespace
}  // namespace voxrt::bench

int main(int argc, char** argv) { return voxrt::bench::Main(argc, argv); }
