// A file written beside its final name and renamed at the end; see the header.
#include "output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace voxrt::app {

OutputFile::OutputFile(std::string path, std::string part_path, std::FILE* file)
    : path_(std::move(path)), part_path_(std::move(part_path)), file_(file) {}

Result<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  std::string part_path = path + ".part";
  std::FILE* file = std::fopen(part_path.c_str(), "wbe");
  if (file == nullptr)
    return Status(StatusCode::kIo, fmt::format("cannot create {}: {}", part_path, std::strerror(errno)));
  return std::unique_ptr<OutputFile>(new OutputFile(path, std::move(part_path), file));
}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);  // not committed: what it says does not matter any more
  std::remove(part_path_.c_str());
}

Status OutputFile::Failure(const char* what) const {
  return {StatusCode::kIo, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno))};
}

Status OutputFile::Write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return Failure("write");
  return {};
}

Status OutputFile::Commit() {
  if (std::fclose(std::exchange(file_, nullptr)) != 0) {
    Status status = Failure("write");
    std::remove(part_path_.c_str());
    return status;
  }
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0) {
    Status status = Failure("rename to");
    std::remove(part_path_.c_str());
    return status;
  }
  return {};
}

}  // namespace voxrt::app
