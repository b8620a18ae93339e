// ByteStream: the bytes of one input with a look at what comes next, so that a format can be told before anything is
// consumed. Regular files can also be repositioned; pipes and uploads cannot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "audio/source.h"
#include "base/status.h"

namespace voxrt::audio {

class ByteStream {
 public:
  // Moves the reader to an absolute position.
  using Seeker = std::function<Status(uint64_t position)>;

  // `name` begins messages. With a seeker the size must be known.
  ByteStream(ByteReader reader, std::string name) : reader_(std::move(reader)), name_(std::move(name)) {}
  ByteStream(ByteReader reader, std::string name, Seeker seeker, uint64_t size)
      : reader_(std::move(reader)), name_(std::move(name)), seeker_(std::move(seeker)), size_(size) {}

  const std::string& name() const { return name_; }
  bool seekable() const { return static_cast<bool>(seeker_); }
  std::optional<uint64_t> size() const { return size_; }

  // Reads ahead until at least `count` unread bytes are held or the input ends. What is held stays unread.
  Status Fill(size_t count);
  std::span<const std::byte> ahead() const { return std::span(ahead_).subspan(used_); }
  bool at_end() const { return at_end_; }

  // 0 = end. Blocks until at least one byte is there.
  Result<size_t> Read(std::span<std::byte> buffer);
  Status Seek(uint64_t position);

 private:
  ByteReader reader_;
  std::string name_;
  Seeker seeker_;
  std::optional<uint64_t> size_;
  std::vector<std::byte> ahead_;  // read from the reader; the first used_ bytes are consumed
  size_t used_ = 0;
  bool at_end_ = false;
};

}  // namespace voxrt::audio
