// A download that is not complete: NAME.part holds the bytes, NAME.part.json which of them have arrived, in segments of
// equal size that fill up from their beginnings. Survives the end of the process at any moment: what the state does not
// mention is fetched again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::hub {

// What identifies the contents; a state of other contents is dropped.
struct PartIdentity {
  std::string hash;  // hex digits, or empty where the hub gives none: then nothing is resumed
  int64_t size = 0;
  int64_t segment_bytes = 0;
  bool operator==(const PartIdentity&) const = default;
};

// The state file's text: bytes present at the beginning of every segment. Pure; kInvalidArgument when damaged or of
// other contents.
std::string WritePartState(const PartIdentity& identity, std::span<const int64_t> present);
Result<std::vector<int64_t>> ParsePartState(std::string_view json, const PartIdentity& identity);

class PartFile {
 public:
  // Opens or creates PATH.part and takes up its state; reserves the disk space. kUnavailable when another process is at
  // it.
  static Result<std::unique_ptr<PartFile>> Open(const std::string& path, const PartIdentity& identity);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  int64_t segments() const { return static_cast<int64_t>(present_.size()); }
  int64_t SegmentBegin(int64_t segment) const { return segment * identity_.segment_bytes; }
  int64_t SegmentBytes(int64_t segment) const;
  // Thread-safe; each segment has one writer.
  int64_t Present(int64_t segment) const;
  int64_t PresentInAll() const;
  // Appends to a segment. VOXRT_CHECKs that it fits: callers cut what servers send.
  Status Append(int64_t segment, std::span<const std::byte> bytes);
  void Restart(int64_t segment);  // forgets its bytes
  Status SaveState() const;

  // The whole file is there: flushes it to the disk. Then read it for hashing, and Commit (rename to PATH) or Discard.
  Status Sync() const;
  const std::string& part_path() const { return part_path_; }
  Status Commit();
  void Discard();

 private:
  PartFile() = default;

  std::string path_;
  std::string part_path_;
  std::string state_path_;
  PartIdentity identity_;
  int fd_ = -1;
  mutable std::mutex mutex_;
  std::vector<int64_t> present_;
};

}  // namespace voxrt::hub
