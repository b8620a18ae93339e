// Read-ahead grows only by what has really arrived, never by what a header claims.
#include "audio/byte_stream.h"

#include <algorithm>

namespace voxrt::audio {

namespace {
constexpr size_t kReadBytes = 4096;
}  // namespace

Status ByteStream::Fill(size_t count) {
  while (!at_end_ && ahead().size() < count) {
    const size_t held = ahead_.size();
    ahead_.resize(held + std::max(kReadBytes, count - ahead().size()));
    Result<size_t> got = reader_(std::span(ahead_).subspan(held));
    ahead_.resize(held + (got.ok() ? *got : 0));
    if (!got.ok()) return got.status();
    at_end_ = *got == 0;
  }
  return {};
}

Result<size_t> ByteStream::Read(std::span<std::byte> buffer) {
  const std::span<const std::byte> held = ahead();
  if (!held.empty()) {
    const size_t count = std::min(held.size(), buffer.size());
    std::copy_n(held.begin(), count, buffer.begin());
    used_ += count;
    if (used_ == ahead_.size()) {
      std::vector<std::byte>().swap(ahead_);
      used_ = 0;
    }
    return count;
  }
  if (at_end_) return size_t{0};
  Result<size_t> got = reader_(buffer);
  if (got.ok()) at_end_ = *got == 0;
  return got;
}

Status ByteStream::Seek(uint64_t position) {
  VOXRT_CHECK(seekable());
  VOXRT_RETURN_IF_ERROR(seeker_(position));
  std::vector<std::byte>().swap(ahead_);
  used_ = 0;
  at_end_ = false;
  return {};
}

}  // namespace voxrt::audio
