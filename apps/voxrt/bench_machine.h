// What the measurements of voxrt bench are compared with and labelled by: the bandwidth of this machine's memory or of
// the device's, the machine's name, this process's memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/json.h"

namespace voxrt::app {

// Bytes per second that `threads` threads read from memory together (best of several passes over a buffer larger than
// any cache).
double MeasureReadBandwidth(int threads);

// What the rate at which weights are read is a share of.
struct MemoryPeak {
  double bytes_per_s = 0.0;  // 0 = unknown
  bool nominal = false;      // of the device, by clock and bus; else measured in this machine's memory
};
// A device with memory of its own has the bandwidth that it states; one in host memory what the host's threads
// measured.
MemoryPeak PeakFor(const backend::DeviceInfo& device, double host_read_bytes_per_s);

// Weight bytes a pass reads in `ms`: "bytes", "gb_per_s" and "share_of_read" or, of a nominal peak, "share_of_nominal";
// no share where the peak is unknown.
base::Json WeightRate(int64_t bytes, double ms, const MemoryPeak& peak);
// The same in words: "12.3 GB/s" + `what` + ", 45 % of read"; beyond the peak a cache held them.
std::string WeightRateText(const base::Json& rate, std::string_view what);

struct ProcessMemory {
  int64_t peak_bytes = 0;       // high-water mark of resident memory, mapped weights included
  int64_t anonymous_bytes = 0;  // now, without file mappings
};
ProcessMemory ReadProcessMemory();
// The peak counts from now on.
void ResetPeakMemory();

std::string CpuName();  // of /proc/cpuinfo
int CpuCount();         // that this process may use

// Value below which `share` (0..1) of the sorted values lie; 0 when there are none.
double Percentile(const std::vector<double>& sorted, double share);

}  // namespace voxrt::app
