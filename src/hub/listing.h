// What a model repository holds, and which of its files a checkpoint needs. Pure functions over the hub's JSON and
// headers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::hub {

struct RemoteFile {
  std::string path;      // inside the repository, '/'-separated; safe to append to a directory
  int64_t size = -1;     // bytes; -1 = not listed
  std::string sha256;    // 64 hex digits, or empty
  std::string git_sha1;  // 40 hex digits (git's name of the contents), or empty
};

struct RepoListing {
  std::string commit;  // 40 hex digits: what the revision stands for now
  std::vector<RemoteFile> files;
};

// Reply of /api/models/REPO/revision/REV?blobs=true. kInvalidArgument when it is something else.
Result<RepoListing> ParseRepoListing(std::string_view json);

// The files of a checkpoint: Mistral's layout where it is complete, else Hugging Face's. kNotFound names what is
// missing.
Result<std::vector<RemoteFile>> SelectCheckpointFiles(const RepoListing& listing);

// "owner/name" of letters, digits and -_. ; not "." or "..".
bool IsRepoName(std::string_view repo);

// Percent-encoded for use inside a URL path; '/' is kept where `keep_slash`.
std::string EscapeForUrl(std::string_view text, bool keep_slash);

// "bytes 0-99/1234" of a Content-Range header; the total must be given.
struct ContentRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t total = 0;
};
std::optional<ContentRange> ParseContentRange(std::string_view header);

// An ETag that names contents: 64 (SHA-256) or 40 (git) hex digits, quotes and W/ removed. Fills the matching field of
// `file`.
void ApplyEtag(std::string_view etag, RemoteFile* file);

}  // namespace voxrt::hub
