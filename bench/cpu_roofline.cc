#include "cpu_roofline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_roofline.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sum of all words: four streams of loads, nothing else.
uint32_t ReadAll(const uint32_t* data, int64_t words) {
  const hn::ScalableTag<uint32_t> d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  const int64_t half = words / 2 / (2 * n) * (2 * n);
  for (int64_t i = 0; i < half; i += 2 * n) {
    a = hn::Add(a, hn::Add(hn::LoadU(d, data + i), hn::LoadU(d, data + i + n)));
    b = hn::Add(b, hn::Add(hn::LoadU(d, data + half + i), hn::LoadU(d, data + half + i + n)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

// 16 independent chains; returns operations done.
double FmaChains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  constexpr int kChains = hn::MaxLanes(hn::ScalableTag<float>()) == 16 ? 16 : 12;
  hn::Vec<decltype(d)> acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, 1.0f + static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999999f);
  const auto term = hn::Set(d, 1e-6f);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], factor, term);
  }
  auto sum = acc[0];
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return static_cast<double>(rounds) * kChains * static_cast<double>(hn::Lanes(d)) * 2.0;
}

}  // namespace voxrt::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::bench {
HWY_EXPORT(ReadAll);
HWY_EXPORT(FmaChains);
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

double MeasureReadBandwidth(base::ThreadPool& pool) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  const std::unique_ptr<uint32_t[]> data(new uint32_t[kBytes / 4]);
  uint32_t sums[1024] = {};
  const auto words = [](int worker, int workers) { return kBytes / 4 * worker / workers / 16 * 16; };
  pool.Run([&](int worker, int workers) {
    std::memset(data.get() + words(worker, workers), 1,
                static_cast<size_t>(words(worker + 1, workers) - words(worker, workers)) * 4);
  });
  double best = 0.0;
  for (int pass = 0; pass < 12; ++pass) {
    const double start = Seconds();
    pool.Run([&](int worker, int workers) {
      sums[worker] += HWY_DYNAMIC_DISPATCH(ReadAll)(data.get() + words(worker, workers),
                                                    words(worker + 1, workers) - words(worker, workers));
    });
    best = std::max(best, static_cast<double>(kBytes) / (Seconds() - start));
  }
  volatile uint32_t keep = sums[0];
  static_cast<void>(keep);
  return best;
}

double MeasureFmaPeak(base::ThreadPool& pool) {
  double best = 0.0;
  for (int pass = 0; pass < 8; ++pass) {
    double operations[1024] = {};
    float sinks[1024] = {};
    const double start = Seconds();
    pool.Run([&](int worker, int) { operations[worker] = HWY_DYNAMIC_DISPATCH(FmaChains)(2000000, &sinks[worker]); });
    const double seconds = Seconds() - start;
    double all = 0.0;
    for (int i = 0; i < pool.threads(); ++i) all += operations[i];
    best = std::max(best, all / seconds);
  }
  return best;
}

}  // namespace voxrt::bench
#endif
