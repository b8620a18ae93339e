// UploadFile: the bytes of an uploaded file: in memory up to 1 MiB, then in an unlinked temporary file. Read back
// through a path, so that decoders can seek (an MP4's index may lie at its end).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::server {

class UploadFile {
 public:
  explicit UploadFile(std::string directory) : directory_(std::move(directory)) {}
  ~UploadFile();
  UploadFile(const UploadFile&) = delete;
  UploadFile& operator=(const UploadFile&) = delete;

  // kIo when the disk is full.
  Status Write(std::string_view bytes);
  int64_t bytes() const { return bytes_; }
  // Opens the bytes from their beginning; valid as long as this object lives.
  std::string path() const;

 private:
  Status MoveToDisk();

  const std::string directory_;
  int fd_ = -1;
  bool on_disk_ = false;
  int64_t bytes_ = 0;
};

// Whether temporary files can be made in `directory`: to be asked before clients find out.
Status CheckTempDir(const std::string& directory);

}  // namespace voxrt::server
