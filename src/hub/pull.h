// Fetches the files of a checkpoint from a model hub (the Hugging Face API, or a mirror of it) into a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/download.h"

namespace voxrt::hub {

inline constexpr char kDefaultEndpoint[] = "https://huggingface.co";
inline constexpr char kDefaultRepo[] = "mistralai/Voxtral-Mini-4B-Realtime-2602";

struct PullOptions {
  std::string repo = kDefaultRepo;
  std::string revision = "main";  // branch, tag or commit
  std::string directory;          // created if absent
  std::string endpoint = kDefaultEndpoint;
  TransferOptions transfer;  // its progress is set per file
  // Called with the file's name and its own bytes; may be empty.
  std::function<void(const std::string& file, int64_t done_bytes, int64_t total_bytes)> progress;
};

struct PullReport {
  std::string commit;
  std::vector<RemoteFile> files;
  int64_t bytes = 0;
};

// All files are those of one commit. Not ok: some may be complete, none is damaged, and the same call goes on from
// there.
Result<PullReport> Pull(const PullOptions& options);

}  // namespace voxrt::hub
