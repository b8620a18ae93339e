#include "load_report.h"

#include <algorithm>
#include <cmath>

namespace voxrt::bench {
namespace {

using base::Json;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
double Round(double value, double unit) { return std::round(value / unit) * unit; }

// A readable number: not more digits than the measurement has.
Json Milli(double value) { return std::round(value * 1000.0) / 1000.0; }

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double rank = std::ceil(share * static_cast<double>(sorted.size())) - 1.0;
  return sorted[static_cast<size_t>(std::clamp(rank, 0.0, static_cast<double>(sorted.size() - 1)))];
}

Json Percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Json::MakeObject({{"p50", Milli(Percentile(values, 0.50))},
                           {"p95", Milli(Percentile(values, 0.95))},
                           {"p99", Milli(Percentile(values, 0.99))},
                           {"max", Milli(values.empty() ? 0.0 : values.back())}});
}

// Of what the server counted between two samples.
struct Difference {
  const Sample& a;
  const Sample& b;
  double Of(const char* name, const char* label = "") const {
    return MetricValue(b.metrics, name, label) - MetricValue(a.metrics, name, label);
  }
  double cpu_s() const { return b.usage.cpu_seconds - a.usage.cpu_seconds; }
  double audio_s() const { return Of("voxrt_audio_received_seconds_total"); }
  double late() const { return Of("voxrt_lag_seconds_count") - Of("voxrt_lag_seconds_bucket", "le=\"0.08\""); }
  double step_ms() const {
    const double steps = Of("voxrt_live_steps_total");
    return steps > 0.0 ? Of("voxrt_live_seconds_total") / steps * 1e3 : 0.0;
  }
  double batch() const {
    const double steps = Of("voxrt_live_steps_total");
    return steps > 0.0 ? Of("voxrt_live_ticks_total") / steps : 0.0;
  }
  double cpu_ms_per_audio_s() const { return audio_s() > 0.0 ? cpu_s() / audio_s() * 1e3 : 0.0; }
};

// Index of the last sample not after `at`.
size_t SampleAt(const std::vector<Sample>& samples, Clock::time_point at) {
  size_t found = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].at <= at) found = i;
  }
  return found;
}

double SlopeBytesPerSecond(const std::vector<Sample>& samples, double settle_s) {
  double n = 0.0, x_sum = 0.0, y_sum = 0.0, xx_sum = 0.0, xy_sum = 0.0;
  for (const Sample& sample : samples) {
    const double x = Seconds(sample.at - samples.front().at), y = sample.usage.resident_bytes;
    if (x < settle_s) continue;
    n += 1.0;
    x_sum += x;
    y_sum += y;
    xx_sum += x * x;
    xy_sum += x * y;
  }
  const double spread = n * xx_sum - x_sum * x_sum;
  return spread > 0.0 ? (n * xy_sum - x_sum * y_sum) / spread : 0.0;
}

}  // namespace

Json LagReport(const Streams& streams) {
  std::vector<double> beyond_delay, beyond_need, final_ms, send_late;
  for (const auto& stream : streams) {
    for (const Lag& lag : stream->lags()) {
      beyond_delay.push_back(lag.beyond_delay);
      beyond_need.push_back(lag.beyond_need);
    }
    send_late.insert(send_late.end(), stream->send_late_ms().begin(), stream->send_late_ms().end());
    if (stream->final_ms() >= 0.0) final_ms.push_back(stream->final_ms());
  }
  return Json::MakeObject({{"pieces", beyond_delay.size()},
                           {"beyond_delay_ms", Percentiles(beyond_delay)},
                           {"beyond_need_ms", Percentiles(beyond_need)},
                           {"end_to_final_ms", Percentiles(final_ms)},
                           {"own_send_late_ms", Percentiles(send_late)}});
}

Json MinuteReport(const Streams& streams, const std::vector<Sample>& samples) {
  Json minutes = Json::MakeArray();
  if (samples.size() < 2) return minutes;
  const Clock::time_point begin = samples.front().at;
  for (int minute = 0; begin + std::chrono::minutes(minute) < samples.back().at; ++minute) {
    const Clock::time_point from = begin + std::chrono::minutes(minute), to = from + std::chrono::minutes(1);
    const Difference part{samples[SampleAt(samples, from)], samples[SampleAt(samples, to)]};
    std::vector<double> lags;
    for (const auto& stream : streams) {
      for (const Lag& lag : stream->lags()) {
        if (lag.arrival >= from && lag.arrival < to) lags.push_back(lag.beyond_delay);
      }
    }
    std::sort(lags.begin(), lags.end());
    minutes.Append(Json::MakeObject({{"seconds", Milli(Seconds(part.b.at - part.a.at))},
                                     {"cpu_s", Milli(part.cpu_s())},
                                     {"audio_s", Milli(part.audio_s())},
                                     {"cpu_ms_per_audio_s", Milli(part.cpu_ms_per_audio_s())},
                                     {"resident_mib", Milli(part.b.usage.resident_bytes / 1048576.0)},
                                     {"tokens", part.Of("voxrt_lag_seconds_count")},
                                     {"late", part.late()},
                                     {"step_ms", Milli(part.step_ms())},
                                     {"batch", Milli(part.batch())},
                                     {"lag_p50_ms", Milli(Percentile(lags, 0.50))},
                                     {"lag_p99_ms", Milli(Percentile(lags, 0.99))}}));
  }
  return minutes;
}

Json ServerReport(const std::vector<Sample>& samples, double settle_s) {
  if (samples.size() < 2) return {};
  const Difference whole{samples.front(), samples.back()};
  const Clock::duration length = samples.back().at - samples.front().at;
  const Difference first{samples.front(), samples[SampleAt(samples, samples.front().at + length / 3)]};
  const Difference last{samples[SampleAt(samples, samples.back().at - length / 3)], samples.back()};
  const auto ratio = [](double a, double b) { return a > 0.0 ? Milli(b / a) : Json(); };
  double most = 0.0;
  for (const Sample& sample : samples) most = std::max(most, sample.usage.resident_bytes);
  return Json::MakeObject(
      {{"seconds", Milli(Seconds(length))},
       {"cpu_s", Milli(whole.cpu_s())},
       {"cores_used", Milli(whole.cpu_s() / Seconds(length))},
       {"audio_s", Milli(whole.audio_s())},
       {"cpu_ms_per_audio_s", Milli(whole.cpu_ms_per_audio_s())},
       {"cpu_per_audio_last_third_over_first", ratio(first.cpu_ms_per_audio_s(), last.cpu_ms_per_audio_s())},
       {"step_ms", Milli(whole.step_ms())},
       {"step_last_third_over_first", ratio(first.step_ms(), last.step_ms())},
       {"batch", Milli(whole.batch())},
       {"tokens", whole.Of("voxrt_lag_seconds_count")},
       {"late", whole.late()},
       {"resident_first_mib", Milli(samples.front().usage.resident_bytes / 1048576.0)},
       {"resident_last_mib", Milli(samples.back().usage.resident_bytes / 1048576.0)},
       {"resident_most_mib", Milli(most / 1048576.0)},
       {"settle_s", Round(settle_s, 1.0)},
       {"resident_slope_kib_per_minute", Milli(SlopeBytesPerSecond(samples, settle_s) * 60.0 / 1024.0)}});
}

}  // namespace voxrt::bench
