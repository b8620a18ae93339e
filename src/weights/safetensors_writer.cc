#include "weights/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/json.h"

namespace voxrt::weights {
namespace {

using base::Json;

Status ErrnoStatus(int error, const std::string& path, const char* what) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Status(StatusCode::kIo, fmt::format("cannot {} {}: {}{}", what, path, std::strerror(error),
                                             full ? "; free some space or name another place" : ""));
}

std::string PartPath(const std::string& path) { return path + ".part"; }

// Opens PATH.part and locks it. A rest of a killed writer is taken over; a file that another writer has just renamed is
// not, nor is a link followed: what it names would be emptied.
Result<int> OpenPart(const std::string& path) {
  const std::string part = PartPath(path);
  for (int attempt = 0; attempt < 8; ++attempt) {
    const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return ErrnoStatus(errno, part, "create");
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return Status(StatusCode::kIo, fmt::format("{} is being written by another process", path));
    }
    struct stat opened = {};
    struct stat named = {};
    if (fstat(fd, &opened) == 0 && stat(part.c_str(), &named) == 0 && opened.st_ino == named.st_ino) return fd;
    close(fd);
  }
  return Status(StatusCode::kIo, fmt::format("{} is being written by another process", path));
}

std::string HeaderText(const std::vector<TensorPlan>& tensors, const WriterOptions& options) {
  Json header = Json::MakeObject();
  if (!options.metadata.empty()) {
    Json::Object metadata;
    for (const auto& [key, value] : options.metadata) metadata.emplace_back(key, value);
    header["__metadata__"] = std::move(metadata);
  }
  Json::Object* members = header.AsObject();
  int64_t at = 0;
  for (const TensorPlan& tensor : tensors) {
    Json::Array shape(tensor.shape.begin(), tensor.shape.end());
    const int64_t end = at + tensor.bytes();
    members->emplace_back(tensor.name, Json::MakeObject({{"dtype", quant::DTypeName(tensor.dtype)},
                                                         {"shape", std::move(shape)},
                                                         {"data_offsets", Json::MakeArray({at, end})}}));
    at = end;
  }
  std::string text = header.Dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string prefix(8, '\0');
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<char>(length >> (8 * i));
  return prefix + text;
}

Status WriteAll(int fd, int64_t at, std::span<const std::byte> bytes, const std::string& path) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(at + static_cast<int64_t>(done)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, path, "write");
    done += static_cast<size_t>(count);
  }
  return Status();
}

// The renamed entry itself must reach the disk too.
Status SyncFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, folder, "open");
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some file systems know no sync of a folder.
  return error == 0 || error == EINVAL ? Status() : ErrnoStatus(error, folder, "sync");
}

}  // namespace

int64_t TensorPlan::bytes() const {
  auto count = static_cast<int64_t>(quant::DTypeBytes(dtype));
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(const std::string& path,
                                                                     std::vector<TensorPlan> tensors,
                                                                     const WriterOptions& options) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  writer->path_ = path;
  writer->tensors_ = std::move(tensors);
  writer->sync_ = options.sync;
  VOXRT_ASSIGN_OR_RETURN(writer->fd_, OpenPart(path));
  VOXRT_RETURN_IF_ERROR(writer->Begin(options));
  return writer;
}

Status SafetensorsWriter::Begin(const WriterOptions& options) {
  header_ = HeaderText(tensors_, options);
  auto at = static_cast<int64_t>(header_.size());
  for (const TensorPlan& tensor : tensors_) {
    offsets_.push_back(at);
    at += tensor.bytes();
  }
  file_bytes_ = at;
  data_bytes_ = at - static_cast<int64_t>(header_.size());
  const std::string part = PartPath(path_);
  if (ftruncate(fd_, 0) != 0) return ErrnoStatus(errno, part, "empty");
  const int error = posix_fallocate(fd_, 0, static_cast<off_t>(file_bytes_));
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) {
    return ErrnoStatus(error, part, fmt::format("reserve {} bytes for", file_bytes_).c_str());
  }
  return WriteAll(fd_, 0, std::as_bytes(std::span(header_)), part);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  if (!finished_) unlink(PartPath(path_).c_str());
  close(fd_);
}

Status SafetensorsWriter::Write(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  VOXRT_CHECK(index < tensors_.size() && offset >= 0);
  const auto count = static_cast<int64_t>(bytes.size());
  VOXRT_CHECK(count <= tensors_[index].bytes() - offset);
  VOXRT_RETURN_IF_ERROR(WriteAll(fd_, offsets_[index] + offset, bytes, PartPath(path_)));
  written_ += count;
  return Status();
}

Status SafetensorsWriter::ReplaceInHeader(std::string_view from, std::string_view to) {
  const size_t at = header_.find(from);
  VOXRT_CHECK(!finished_ && from.size() == to.size() && at != header_.npos &&
              header_.find(from, at + 1) == header_.npos);
  header_.replace(at, to.size(), to);
  return WriteAll(fd_, static_cast<int64_t>(at), std::as_bytes(std::span(to)), PartPath(path_));
}

Status SafetensorsWriter::Finish() {
  VOXRT_CHECK(!finished_ && written_ == data_bytes_);
  const std::string part = PartPath(path_);
  if (sync_ && fsync(fd_) != 0) return ErrnoStatus(errno, part, "sync");
  if (rename(part.c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, path_, "create");
  finished_ = true;
  return sync_ ? SyncFolder(path_) : Status();
}

}  // namespace voxrt::weights
