#include "server/stream/backlog.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace voxrt::server {
namespace {

constexpr size_t kBlockBytes = 64 * 1024;  // small appends are joined, so that a byte costs a byte
constexpr int64_t kResumeBytes = 1 << 20;

Status IoError(const std::string& what) { return {StatusCode::kIo, what + ": " + std::strerror(errno)}; }

}  // namespace

Result<int> OpenUnlinkedFile(const std::string& directory) {
  int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = directory + "/voxrt-XXXXXX";  // file systems without O_TMPFILE
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return IoError("cannot create a temporary file in " + directory);
  unlink(name.c_str());
  return fd;
}

Backlog::Backlog(BacklogLimits limits, std::shared_ptr<BacklogBudget> budget)
    : limits_(std::move(limits)), budget_(std::move(budget)) {}

Backlog::~Backlog() {
  Account(-bytes());
  if (fd_ >= 0) close(fd_);
}

void Backlog::Account(int64_t bytes) { budget_->used += bytes; }

Status Backlog::Append(std::string_view bytes) {
  if (bytes.empty()) return {};
  const bool to_file = file_bytes() > 0 || memory_bytes_ + static_cast<int64_t>(bytes.size()) > limits_.memory_bytes;
  if (to_file) {
    VOXRT_RETURN_IF_ERROR(AppendToFile(bytes));
  } else {
    if (blocks_.empty() || blocks_.back().size() + bytes.size() > kBlockBytes) {
      blocks_.emplace_back();
      blocks_.back().reserve(std::max(std::min(bytes.size() * 2, kBlockBytes), bytes.size()));
    }
    blocks_.back().append(bytes);
    memory_bytes_ += static_cast<int64_t>(bytes.size());
  }
  Account(static_cast<int64_t>(bytes.size()));
  return {};
}

Status Backlog::AppendToFile(std::string_view bytes) {
  if (fd_ < 0) {
    VOXRT_ASSIGN_OR_RETURN(fd_, OpenUnlinkedFile(limits_.directory));
  }
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n =
        pwrite(fd_, bytes.data() + written, bytes.size() - written, file_end_ + static_cast<int64_t>(written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Status status = IoError("cannot write buffered audio to " + limits_.directory);
      if (ftruncate(fd_, file_end_) != 0) return IoError("cannot truncate buffered audio");
      return status;
    }
    written += static_cast<size_t>(n);
  }
  file_end_ += static_cast<int64_t>(bytes.size());
  return {};
}

Status Backlog::Read(size_t count, std::string* out) {
  while (count > 0 && !blocks_.empty()) {
    std::string& front = blocks_.front();
    const size_t take = std::min(count, front.size() - first_begin_);
    out->append(front, first_begin_, take);
    first_begin_ += take;
    memory_bytes_ -= static_cast<int64_t>(take);
    Account(-static_cast<int64_t>(take));
    count -= take;
    if (first_begin_ < front.size()) continue;
    blocks_.pop_front();
    first_begin_ = 0;
  }
  while (count > 0 && file_bytes() > 0) {
    const size_t take = std::min(count, static_cast<size_t>(file_bytes()));
    const size_t at = out->size();
    out->resize(at + take);
    const ssize_t n = pread(fd_, out->data() + at, take, file_begin_);
    if (n <= 0 && !(n < 0 && errno == EINTR)) {
      out->resize(at);
      return IoError("cannot read buffered audio back");
    }
    const int64_t got = std::max<ssize_t>(n, 0);
    out->resize(at + static_cast<size_t>(got));
    file_begin_ += got;
    Account(-got);
    count -= static_cast<size_t>(got);
  }
  ResetEmptyFile();
  return {};
}

void Backlog::DropTail(int64_t count) {
  const int64_t from_file = std::min(count, file_bytes());
  file_end_ -= from_file;
  Account(-from_file);
  count -= from_file;
  while (count > 0 && !blocks_.empty()) {
    std::string& back = blocks_.back();
    const int64_t available = static_cast<int64_t>(back.size() - (blocks_.size() == 1 ? first_begin_ : 0));
    const int64_t take = std::min(count, available);
    back.resize(back.size() - static_cast<size_t>(take));
    memory_bytes_ -= take;
    Account(-take);
    count -= take;
    if (take < available) break;
    if (blocks_.size() == 1) first_begin_ = 0;
    blocks_.pop_back();
  }
  ResetEmptyFile();
}

void Backlog::ResetEmptyFile() {
  if (fd_ < 0 || file_bytes() > 0) return;
  close(fd_);
  fd_ = -1;
  file_begin_ = file_end_ = 0;
}

bool Backlog::full() {
  const int64_t room = full_ ? kResumeBytes : 0;
  full_ = bytes() + room > limits_.total_bytes || budget_->used.load() + room > budget_->limit;
  if (bytes() == 0) full_ = false;  // others use the budget up: this session holds nothing that could be waited for
  return full_;
}

}  // namespace voxrt::server
