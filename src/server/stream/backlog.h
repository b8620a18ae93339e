// Backlog: received audio bytes that the engine has not taken yet, first in first out. In memory up to a limit, beyond
// it in an unlinked temporary file, so that a client may send an hour at once without being throttled.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::server {

// Bytes of all sessions together; shared and thread-safe.
struct BacklogBudget {
  std::atomic<int64_t> used{0};
  int64_t limit = INT64_MAX;
};

struct BacklogLimits {
  int64_t memory_bytes = 128LL << 20;  // above: to a file
  int64_t total_bytes = 1LL << 30;     // above: full
  std::string directory = "/tmp";
};

class Backlog {
 public:
  Backlog(BacklogLimits limits, std::shared_ptr<BacklogBudget> budget);
  ~Backlog();
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // kIo when the temporary file cannot be written (disk full): the bytes are not taken.
  Status Append(std::string_view bytes);
  // Moves up to `count` bytes to the end of *out; fewer only when there are fewer.
  Status Read(size_t count, std::string* out);
  // Takes the last `count` bytes away.
  void DropTail(int64_t count);

  int64_t bytes() const { return memory_bytes_ + file_bytes(); }
  // No more should be read from the client; stays so until 1 MiB below the limit.
  bool full();

 private:
  int64_t file_bytes() const { return file_end_ - file_begin_; }
  Status AppendToFile(std::string_view bytes);
  void Account(int64_t bytes);
  void ResetEmptyFile();

  const BacklogLimits limits_;
  const std::shared_ptr<BacklogBudget> budget_;
  std::deque<std::string> blocks_;  // before everything in the file
  size_t first_begin_ = 0;          // bytes of blocks_.front() already read
  int64_t memory_bytes_ = 0;
  int fd_ = -1;
  int64_t file_begin_ = 0, file_end_ = 0;
  bool full_ = false;
};

// An unlinked temporary file in `directory`, or a Status that names it.
Result<int> OpenUnlinkedFile(const std::string& directory);

}  // namespace voxrt::server
