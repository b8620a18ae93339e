// OutputFile: a result file that appears under its name only when it is complete; a failed or abandoned one leaves
// nothing behind.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::app {

class OutputFile {
 public:
  static Result<std::unique_ptr<OutputFile>> Create(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status Write(std::string_view bytes);
  // Makes it visible under its name, replacing an older one.
  Status Commit();
  const std::string& path() const { return path_; }

 private:
  OutputFile(std::string path, std::string part_path, std::FILE* file);
  Status Failure(const char* what) const;

  std::string path_;
  std::string part_path_;
  std::FILE* file_;
};

}  // namespace voxrt::app
