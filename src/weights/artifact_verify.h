// The contents of an artifact against the hash that it states: `voxrt inspect --verify`. Opening an artifact checks its
// structure only, because reading every byte would take longer than the start of the program.
#pragma once

#include <string>

#include "base/status.h"

namespace voxrt::weights {

// kInvalidModel: a file is damaged (or no artifact; then the message says so). Reads everything, with `threads` threads
// (0 = one per core). `data_path` as in OpenOptions.
Status VerifyArtifact(const std::string& path, const std::string& data_path, int threads = 0);

}  // namespace voxrt::weights
