// Fetches one file of known contents: parallel ranges, resume, retries with growing pauses, and the hash at the end. A
// file appears under its name only when its size and hash are right.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "hub/http.h"
#include "hub/listing.h"

namespace voxrt::hub {

struct TransferOptions {
  HttpOptions http;
  int connections = 8;
  int64_t segment_bytes = int64_t{64} << 20;
  int max_failures = 8;  // in a row without a new byte, per segment
  int first_pause_ms =
      500;  // doubles with every failure in a row, up to 30 s; Retry-After of the server overrides it, up to 120 s
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // one call at a time; may be empty
};

// `file.size` and at least one hash should be known; a size of -1 is asked from the server. `path` is where it goes. A
// complete file with the right hash is left alone. kCancelled keeps what has arrived, for the next call.
Status DownloadFile(const std::string& url, RemoteFile file, const std::string& path, const TransferOptions& options);

// Hash of a file on disk against the ones that are known; kUnavailable with found and expected where they differ.
Status CheckFileHash(const std::string& path, const RemoteFile& file, const std::atomic<bool>* cancelled);

}  // namespace voxrt::hub
