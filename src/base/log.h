// Logging to standard error: what the program did, never what a user said. Through spdlog where it is compiled in.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace voxrt {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Process-wide threshold (default kWarning); the one place where logging is configured.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();

// Writes one already formatted line.
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level < GetLogLevel()) return;
  LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace voxrt
