// MappedFile: a file mapped read-only and used in place. A file that shrinks or vanishes while mapped would end the
// process with SIGBUS at the next read; here the lost pages read as zero instead and `changed()` turns true, so that
// the owner can fail with a message. The handler that does it is process-wide, installed at the first Open, and passes
// faults at foreign addresses on to the handler that was there before (architecture: the one allowed exception to "no
// globals").
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace voxrt::base {

class MappedFile {
 public:
  // `path` must be a regular file. kNotFound, kIo, or kResourceExhausted when too many files are mapped.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  const std::string& path() const { return path_; }
  // True once a page of the mapping could not be read; all its bytes from there on may be zero. From any thread.
  bool changed() const;

 private:
  struct Slot;
  MappedFile() = default;

  std::string path_;
  void* data_ = nullptr;
  size_t size_ = 0;
  Slot* slot_ = nullptr;

  friend struct MappedFileRegistry;
};

// Not ok where `path` is there and is neither a file nor a directory; the message is that of MappedFile::Open.
Status RefusePipe(const std::string& path);

// A whole small file, refused above `max_bytes`. The same errors as MappedFile::Open.
Result<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace voxrt::base
