#include "hub/part_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/check.h"
#include "base/json.h"

namespace voxrt::hub {
namespace {

using base::Json;

constexpr int kStateVersion = 1;
constexpr size_t kMaxStateBytes = size_t{4} << 20;

Status IoError(const std::string& what, const std::string& path) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT;
  return Status(StatusCode::kIo, fmt::format("cannot {} {}: {}{}", what, path, std::strerror(error),
                                             full ? "; free some space and run the same command again to go on" : ""));
}

int64_t SegmentCount(const PartIdentity& identity) {
  return std::max<int64_t>(1, (identity.size + identity.segment_bytes - 1) / identity.segment_bytes);
}

int64_t BytesOf(const PartIdentity& identity, int64_t segment) {
  return std::min(identity.segment_bytes, identity.size - segment * identity.segment_bytes);
}

// Writes a small file so that readers see the old or the new text, never a part.
Status ReplaceSmallFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) return IoError("write", temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return IoError("rename", temporary);
  return {};
}

std::string ReadState(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxStateBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

}  // namespace

std::string WritePartState(const PartIdentity& identity, std::span<const int64_t> present) {
  Json::Array array(present.begin(), present.end());
  return Json::MakeObject({{"version", kStateVersion},
                           {"hash", identity.hash},
                           {"size", identity.size},
                           {"segment_bytes", identity.segment_bytes},
                           {"present", Json(std::move(array))}})
      .Dump();
}

Result<std::vector<int64_t>> ParsePartState(std::string_view json, const PartIdentity& identity) {
  const auto bad = [](const char* what) { return Status(StatusCode::kInvalidArgument, what); };
  Result<Json> state = base::ParseJson(json, {.max_bytes = kMaxStateBytes, .max_depth = 4});
  if (!state.ok()) return state.status();
  const auto number = [&](const char* key) {
    const Json* value = state->Find(key);
    return value != nullptr ? value->AsInt().value_or(-1) : -1;
  };
  const Json* hash = state->Find("hash");
  if (number("version") != kStateVersion) return bad("the state is of another version");
  if (identity.hash.empty() || hash == nullptr || hash->AsString() == nullptr || *hash->AsString() != identity.hash ||
      number("size") != identity.size || number("segment_bytes") != identity.segment_bytes) {
    return bad("the state belongs to other contents");
  }
  const Json* present = state->Find("present");
  const Json::Array* array = present != nullptr ? present->AsArray() : nullptr;
  if (array == nullptr || static_cast<int64_t>(array->size()) != SegmentCount(identity))
    return bad("the segments do not fit the size");
  std::vector<int64_t> out;
  for (const Json& value : *array) {
    const int64_t bytes = value.AsInt().value_or(-1);
    if (bytes < 0 || bytes > BytesOf(identity, static_cast<int64_t>(out.size())))
      return bad("a segment is longer than its share");
    out.push_back(bytes);
  }
  return out;
}

Result<std::unique_ptr<PartFile>> PartFile::Open(const std::string& path, const PartIdentity& identity) {
  VOXRT_CHECK(identity.size >= 0 && identity.segment_bytes > 0);
  std::unique_ptr<PartFile> part(new PartFile());
  part->path_ = path;
  part->part_path_ = path + ".part";
  part->state_path_ = path + ".part.json";
  part->identity_ = identity;
  part->fd_ = ::open(part->part_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (part->fd_ < 0) return IoError("open", part->part_path_);
  if (::flock(part->fd_, LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kIo,
                  fmt::format("{} is being downloaded by another process; wait for it or end it", path));
  }
  part->present_.assign(static_cast<size_t>(SegmentCount(identity)), 0);
  struct stat info {};
  Result<std::vector<int64_t>> state = ParsePartState(ReadState(part->state_path_), identity);
  if (state.ok() && ::fstat(part->fd_, &info) == 0 && info.st_size == identity.size) {
    part->present_ = *std::move(state);
  } else {
    if (::ftruncate(part->fd_, 0) != 0 || ::ftruncate(part->fd_, identity.size) != 0)
      return IoError("resize", part->part_path_);
  }
  if (identity.size > 0) {
    const int error = ::posix_fallocate(part->fd_, 0, identity.size);
    if (error == ENOSPC || error == EDQUOT) {
      errno = error;
      return IoError(fmt::format("reserve {:.2f} GB for", static_cast<double>(identity.size) * 1e-9), part->part_path_);
    }
  }
  return part;
}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
}

int64_t PartFile::SegmentBytes(int64_t segment) const { return BytesOf(identity_, segment); }

int64_t PartFile::Present(int64_t segment) const {
  const std::lock_guard lock(mutex_);
  return present_[static_cast<size_t>(segment)];
}

int64_t PartFile::PresentInAll() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(present_.begin(), present_.end(), int64_t{0});
}

Status PartFile::Append(int64_t segment, std::span<const std::byte> bytes) {
  const int64_t present = Present(segment);
  VOXRT_CHECK(present + static_cast<int64_t>(bytes.size()) <= SegmentBytes(segment));
  int64_t at = SegmentBegin(segment) + present;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, at);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return IoError("write", part_path_);
    }
    done += static_cast<size_t>(wrote);
    at += wrote;
  }
  const std::lock_guard lock(mutex_);
  present_[static_cast<size_t>(segment)] += static_cast<int64_t>(bytes.size());
  return {};
}

void PartFile::Restart(int64_t segment) {
  const std::lock_guard lock(mutex_);
  present_[static_cast<size_t>(segment)] = 0;
}

Status PartFile::SaveState() const {
  std::vector<int64_t> present;
  {
    const std::lock_guard lock(mutex_);
    present = present_;
  }
  return ReplaceSmallFile(state_path_, WritePartState(identity_, present));
}

Status PartFile::Sync() const { return ::fsync(fd_) == 0 ? Status() : IoError("flush", part_path_); }

Status PartFile::Commit() {
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0) return IoError("rename", part_path_);
  ::unlink(state_path_.c_str());
  // The new name is durable once its folder is.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  return {};
}

void PartFile::Discard() {
  ::unlink(state_path_.c_str());
  ::unlink(part_path_.c_str());
}

}  // namespace voxrt::hub
