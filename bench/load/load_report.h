// What a load run measured, as JSON.
#pragma once

#include <memory>
#include <vector>

#include "base/json.h"
#include "live_stream.h"
#include "server_process.h"

namespace voxrt::bench {

// Taken of the server while the load runs.
struct Sample {
  Clock::time_point at;
  ProcessUsage usage;
  MetricValues metrics;  // since the server's start
};

using Streams = std::vector<std::unique_ptr<LiveStream>>;

// Lags of all text, their percentiles.
base::Json LagReport(const Streams& streams);
// One object per minute: CPU, memory, ticks, lag.
base::Json MinuteReport(const Streams& streams, const std::vector<Sample>& samples);
// CPU and memory of the whole run. The slope is the least-squares line through the resident memory, the first
// `settle_s` seconds left out.
base::Json ServerReport(const std::vector<Sample>& samples, double settle_s);

}  // namespace voxrt::bench
