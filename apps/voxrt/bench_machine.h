// What the measurements of voxrt bench are compared with and labelled by: this machine's read bandwidth, its name, this
// process's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace voxrt::app {

// Bytes per second that `threads` threads read from memory together (best of several passes over a buffer larger than
// any cache).
double MeasureReadBandwidth(int threads);

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
