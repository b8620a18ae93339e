#include "server/upload_file.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "server/stream/backlog.h"

namespace voxrt::server {
namespace {

constexpr int64_t kMemoryBytes = 1 << 20;

Status WriteAll(int fd, std::string_view bytes, const std::string& where) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {StatusCode::kIo, "cannot store the upload in " + where + ": " + std::strerror(errno)};
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

UploadFile::~UploadFile() {
  if (fd_ >= 0) close(fd_);
}

Status UploadFile::Write(std::string_view bytes) {
  if (fd_ < 0) {
    fd_ = memfd_create("voxrt-upload", MFD_CLOEXEC);
    if (fd_ < 0) return {StatusCode::kIo, std::string("cannot hold the upload in memory: ") + std::strerror(errno)};
  }
  if (!on_disk_ && bytes_ + static_cast<int64_t>(bytes.size()) > kMemoryBytes) VOXRT_RETURN_IF_ERROR(MoveToDisk());
  VOXRT_RETURN_IF_ERROR(WriteAll(fd_, bytes, on_disk_ ? directory_ : "memory"));
  bytes_ += static_cast<int64_t>(bytes.size());
  return {};
}

Status UploadFile::MoveToDisk() {
  VOXRT_ASSIGN_OR_RETURN(const int disk, OpenUnlinkedFile(directory_));
  off_t offset = 0;
  while (offset < bytes_) {
    const ssize_t n = sendfile(disk, fd_, &offset, static_cast<size_t>(bytes_ - offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Status status(StatusCode::kIo, "cannot store the upload in " + directory_ + ": " + std::strerror(errno));
      close(disk);
      return status;
    }
  }
  close(fd_);
  fd_ = disk;
  on_disk_ = true;
  return {};
}

std::string UploadFile::path() const { return "/proc/self/fd/" + std::to_string(fd_); }

Status CheckTempDir(const std::string& directory) {
  const Result<int> file = OpenUnlinkedFile(directory);
  if (!file.ok())
    return {StatusCode::kInvalidArgument,
            file.status().message() + "; name a folder that can be written with --temp-dir"};
  close(*file);
  return {};
}

}  // namespace voxrt::server
