// Screen: the one writer of standard output (results, nothing else) and of status on standard error. On a terminal it
// keeps a status line (progress, level meter) under the text and redraws it around everything that is printed.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::app {

struct ScreenOptions {
  bool quiet = false;
  std::string color = "auto";  // auto, always, never
};

class Screen {
 public:
  explicit Screen(const ScreenOptions& options);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Writes to standard output at once. After a failure every call returns that failure; a reader that went away is
  // kCancelled without a message, anything else kIo.
  Status Out(std::string_view bytes);

  // One line on standard error with "voxrt: " before it. Notes are dropped by --quiet, errors never.
  void Note(std::string_view line);
  void Warning(std::string_view line);
  void Error(std::string_view line);

  // The transient line; nothing where standard error is no terminal or --quiet was given. Redrawn at most ten times a
  // second.
  bool shows_status() const { return shows_status_; }
  bool StatusDue() const;
  void SetStatus(std::string_view line);
  void ClearStatus();

  bool color() const { return color_; }

 private:
  void Line(std::string_view color, std::string_view label, std::string_view line);
  void EraseStatus();
  void DrawStatus();
  void Err(std::string_view bytes);

  bool quiet_;
  bool color_;
  bool shows_status_;
  bool shared_;     // text and status share one terminal: the status line is drawn below the text
  int column_ = 0;  // of the cursor after the text written so far (shared_ only)
  std::string status_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_draw_{};
  Status failure_;
};

// Columns of the terminal, 80 where unknown.
int TerminalColumns();

// "3:07", "1:02:45" from milliseconds.
std::string FormatClock(int64_t ms);

}  // namespace voxrt::app
