// Measurements of the machine and the process; see the header.
#include "bench_machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/thread_pool.h"

namespace voxrt::app {
namespace {

constexpr size_t kBandwidthBytes = size_t{512} << 20;  // beyond the caches of today's servers
constexpr int kPasses = 7;

// Eight independent sums keep enough loads in flight.
uint64_t SumWords(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// "VmHWM:   123 kB" of /proc/self/status.
int64_t StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  base::ThreadPool pool(threads);
  std::vector<uint64_t> words(kBandwidthBytes / sizeof(uint64_t));
  std::atomic<uint64_t> sink = 0;
  const auto part = [&words](int worker, int workers) {
    const size_t begin = words.size() * static_cast<size_t>(worker) / static_cast<size_t>(workers);
    return std::pair(begin, words.size() * static_cast<size_t>(worker + 1) / static_cast<size_t>(workers));
  };
  pool.Run([&](int worker, int workers) {  // first touch by the thread that reads
    const auto range = part(worker, workers);
    std::fill(words.begin() + static_cast<ptrdiff_t>(range.first), words.begin() + static_cast<ptrdiff_t>(range.second),
              worker + 1);
  });
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    pool.Run([&](int worker, int workers) {
      const auto range = part(worker, workers);
      sink += SumWords(words.data() + range.first, range.second - range.first);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, static_cast<double>(kBandwidthBytes) / seconds);
  }
  return sink == 0 ? 0.0 : best;  // the sum is never 0: it only has to be used
}

MemoryPeak PeakFor(const backend::DeviceInfo& device, double host_read_bytes_per_s) {
  if (device.memory_bytes == 0) return {.bytes_per_s = host_read_bytes_per_s};
  return {.bytes_per_s = static_cast<double>(device.memory_bytes_per_s), .nominal = true};
}

base::Json WeightRate(int64_t bytes, double ms, const MemoryPeak& peak) {
  const double rate = ms > 0 ? static_cast<double>(bytes) / (ms / 1e3) : 0.0;
  base::Json json = base::Json::MakeObject({{"bytes", bytes}, {"gb_per_s", rate / 1e9}});
  if (peak.bytes_per_s > 0) json[peak.nominal ? "share_of_nominal" : "share_of_read"] = rate / peak.bytes_per_s;
  return json;
}

std::string WeightRateText(const base::Json& rate, std::string_view what) {
  std::string text = fmt::format("{:.1f} GB/s{}", rate.Find("gb_per_s")->AsDouble().value_or(0.0), what);
  for (const auto& [key, name] : {std::pair("share_of_read", "read"), {"share_of_nominal", "nominal bandwidth"}}) {
    if (const base::Json* share = rate.Find(key)) {
      const double part = share->AsDouble().value_or(0.0);
      text += fmt::format(", {:.0f} % of {}{}", part * 100, name, part > 1 ? ": out of a cache" : "");
    }
  }
  return text;
}

void ResetPeakMemory() {
  std::ofstream("/proc/self/clear_refs") << '5';  // where the kernel refuses, the peak is that of the whole process
}

ProcessMemory ReadProcessMemory() {
  return {.peak_bytes = StatusBytes("VmHWM"), .anonymous_bytes = StatusBytes("RssAnon")};
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "unknown";
}

int CpuCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double rank = std::ceil(share * static_cast<double>(sorted.size())) - 1.0;
  return sorted[static_cast<size_t>(std::clamp(rank, 0.0, static_cast<double>(sorted.size() - 1)))];
}

}  // namespace voxrt::app
