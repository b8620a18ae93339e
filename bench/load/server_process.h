// The server under load: started here or found at an address; what it says in /metrics and what /proc says of it.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::bench {

// A started `voxrt serve`, ended with the object.
class ServerProcess {
 public:
  // Waits for the line that names its port. The server's log goes to `log_path`.
  static Result<std::unique_ptr<ServerProcess>> Start(const std::string& program,
                                                      const std::vector<std::string>& arguments,
                                                      const std::string& log_path);
  ~ServerProcess();

  pid_t pid() const { return pid_; }
  int port() const { return port_; }
  // SIGTERM, then waits: the exit code.
  int Stop();

 private:
  explicit ServerProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  int port_ = 0;
  bool running_ = true;
};

// Metric with its labels as written -> value.
using MetricValues = std::map<std::string, double, std::less<>>;
Result<MetricValues> ScrapeMetrics(const std::string& host, int port);
// Of the metric of that name whose labels hold `label` (empty: any); 0 when there is none.
double MetricValue(const MetricValues& values, std::string_view name, std::string_view label = {});

struct ProcessUsage {
  double cpu_seconds = 0.0;
  double resident_bytes = 0.0;
};
std::optional<ProcessUsage> ReadProcessUsage(pid_t pid);

}  // namespace voxrt::bench
