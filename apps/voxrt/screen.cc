// Writing to the two standard streams; see the header.
//
// Sharing a terminal. With text and status on one terminal the cursor stays at the end of the text. To draw: go down
// one line (at the bottom the screen scrolls), write the status, go up again and right to the text's column. To erase:
// the same with an empty status. Only the column must be known, and it follows from the text written.
#include "screen.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "text/code_points.h"

namespace voxrt::app {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval(100);

// errno of the failed write, 0 when everything was written.
int WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::string TruncateToColumns(std::string_view line, int columns) {
  std::string out;
  for (const text::Character& character : text::SplitCharacters(line)) {
    if ((columns -= character.columns) < 0) break;
    out.append(character.text);
  }
  return out;
}

bool WantsColor(const std::string& mode) {
  if (mode != "auto") return mode == "always";
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace

int TerminalColumns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string FormatClock(int64_t ms) {
  const int64_t s = std::max<int64_t>(ms, 0) / 1000;
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

Screen::Screen(const ScreenOptions& options)
    : quiet_(options.quiet),
      color_(WantsColor(options.color)),
      shows_status_(!options.quiet && isatty(STDERR_FILENO) != 0),
      shared_(shows_status_ && isatty(STDOUT_FILENO) != 0) {}

Screen::~Screen() { ClearStatus(); }

void Screen::Err(std::string_view bytes) {
  WriteAll(STDERR_FILENO, bytes);  // there is nobody left to tell when this fails
}

Status Screen::Out(std::string_view bytes) {
  if (!failure_.ok() || bytes.empty()) return failure_;
  EraseStatus();
  if (const int error = WriteAll(STDOUT_FILENO, bytes); error != 0) {
    failure_ = error == EPIPE
                   ? Status(StatusCode::kCancelled, "")
                   : Status(StatusCode::kIo, fmt::format("cannot write standard output: {}", std::strerror(error)));
    return failure_;
  }
  if (shared_) {
    const size_t line = bytes.rfind('\n');
    if (line != std::string_view::npos) {
      column_ = 0;
      bytes.remove_prefix(line + 1);
    }
    const int columns = text::Columns(bytes);
    column_ = (column_ + columns) % TerminalColumns();
    // After the last column the cursor waits there instead of going to the next line: make it go.
    if (columns > 0 && column_ == 0) Err(" \r");
  }
  DrawStatus();
  return failure_;
}

void Screen::Line(std::string_view color, std::string_view label, std::string_view line) {
  EraseStatus();
  std::string out = shared_ && column_ > 0 ? "\n" : "";
  // File names may hold anything: a message stays one line and gives the terminal no orders.
  std::string shown(line);
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  if (color_ && !color.empty()) {
    out += fmt::format("voxrt: \033[{}m{}\033[0m{}\n", color, label, shown);
  } else {
    out += fmt::format("voxrt: {}{}\n", label, shown);
  }
  Err(out);
  column_ = 0;
  DrawStatus();
}

void Screen::Note(std::string_view line) {
  if (!quiet_) Line("", "", line);
}
void Screen::Warning(std::string_view line) {
  if (!quiet_) Line("33", "warning: ", line);
}
void Screen::Error(std::string_view line) { Line("31", "error: ", line); }

bool Screen::StatusDue() const { return shows_status_ && std::chrono::steady_clock::now() >= next_draw_; }

void Screen::SetStatus(std::string_view line) {
  if (!shows_status_) return;
  next_draw_ = std::chrono::steady_clock::now() + kRedrawInterval;
  EraseStatus();
  status_ = TruncateToColumns(line, TerminalColumns() - 1);
  DrawStatus();
}

void Screen::ClearStatus() {
  EraseStatus();
  status_.clear();
}

void Screen::DrawStatus() {
  if (drawn_ || status_.empty()) return;
  const std::string line = color_ ? fmt::format("\033[2m{}\033[0m", status_) : status_;
  if (!shared_) {
    Err("\r\033[K" + line);
  } else {
    Err("\n\r\033[K" + line + "\033[1A\r" + (column_ > 0 ? fmt::format("\033[{}C", column_) : ""));
  }
  drawn_ = true;
}

void Screen::EraseStatus() {
  if (!drawn_) return;
  drawn_ = false;
  if (!shared_) {
    Err("\r\033[K");
  } else {
    Err("\n\r\033[K\033[1A\r" + (column_ > 0 ? fmt::format("\033[{}C", column_) : ""));
  }
}

}  // namespace voxrt::app
