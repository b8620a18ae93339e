#include "base/log.h"

#include <atomic>
#include <cstdio>

#ifdef VOXRT_HAVE_SPDLOG
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#endif

namespace voxrt {
namespace {

std::atomic<LogLevel>& Threshold() {
  static std::atomic<LogLevel> level{LogLevel::kWarning};
  return level;
}

#ifdef VOXRT_HAVE_SPDLOG
spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("voxrt", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *logger;
}
#endif

}  // namespace

void SetLogLevel(LogLevel level) { Threshold() = level; }
LogLevel GetLogLevel() { return Threshold(); }

void LogLine(LogLevel level, std::string_view line) {
#ifdef VOXRT_HAVE_SPDLOG
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::off};
  Logger().log(kLevels[static_cast<int>(level)], line);
#else
  constexpr const char* kNames[] = {"debug", "info", "warning", "error", "off"};
  std::fprintf(stderr, "%s %.*s\n", kNames[static_cast<int>(level)], static_cast<int>(line.size()), line.data());
#endif
}

}  // namespace voxrt
