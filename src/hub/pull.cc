#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace voxrt::hub {
namespace {

constexpr size_t kMaxListingBytes = size_t{16} << 20;

bool IsTransientStatus(long status) { return status == 0 || status == 429 || status >= 500; }

Status ListingError(const HttpReply& reply, const PullOptions& options) {
  const std::string what = fmt::format("{} (revision {})", options.repo, options.revision);
  if (reply.status == 0) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("no reply from {}: {}; check the network, or set HF_ENDPOINT to a mirror",
                              options.endpoint, reply.transport_error));
  }
  if (reply.status == 401 || reply.status == 403) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format(
            "the hub refuses access ({}) to {}: accept the model's terms there and set HF_TOKEN, or check the name",
            reply.status, what));
  }
  if (reply.status == 404) {
    return Status(StatusCode::kNotFound, fmt::format("there is no {} at {}; check the repository name and --revision",
                                                     what, options.endpoint));
  }
  return Status(StatusCode::kUnavailable, fmt::format("{} answered {} to the listing of {}; try again later",
                                                      options.endpoint, reply.status, what));
}

// Returns early when cancelled.
void Wait(std::chrono::milliseconds time, const std::atomic<bool>* cancelled) {
  constexpr std::chrono::milliseconds kSlice(50);
  for (; time.count() > 0 && !(cancelled != nullptr && cancelled->load()); time -= kSlice) {
    std::this_thread::sleep_for(std::min(time, kSlice));
  }
}

Result<RepoListing> FetchListing(const PullOptions& options) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options.endpoint, options.repo,
                                      EscapeForUrl(options.revision, false));
  for (int attempt = 1;; ++attempt) {
    std::string body;
    VOXRT_ASSIGN_OR_RETURN(
        const HttpReply reply,
        HttpGet(url, "", options.transfer.http, [&](const HttpReply&, std::span<const std::byte> bytes) {
          if (body.size() + bytes.size() > kMaxListingBytes) return false;
          body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return true;
        }));
    if (reply.status == 200 && reply.transport_error.empty()) return ParseRepoListing(body);
    const bool again = IsTransientStatus(reply.status) || (reply.status == 200 && !reply.transport_error.empty());
    if (!again || attempt >= options.transfer.max_failures) {
      if (reply.status == 200) {
        return Status(StatusCode::kUnavailable,
                      fmt::format("the listing of {} breaks off: {}", options.repo, reply.transport_error));
      }
      return ListingError(reply, options);
    }
    Wait(std::chrono::milliseconds(options.transfer.first_pause_ms) * (1 << std::min(attempt - 1, 5)),
         options.transfer.http.cancelled);
  }
}

}  // namespace

Result<PullReport> Pull(const PullOptions& options) {
  if (!IsRepoName(options.repo)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is no repository name; expected OWNER/NAME, as in {}", options.repo, kDefaultRepo));
  }
  if (options.revision.empty() || options.revision.size() > 200) {
    return Status(StatusCode::kInvalidArgument,
                  "the revision must be a branch, tag or commit of at most 200 characters");
  }
  if (!options.endpoint.starts_with("https://") && !options.endpoint.starts_with("http://")) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("HF_ENDPOINT is '{}', expected an address that begins with https:// or http://; correct "
                              "or unset it",
                              options.endpoint));
  }
  PullOptions fixed = options;
  while (fixed.endpoint.ends_with('/')) fixed.endpoint.pop_back();
  VOXRT_ASSIGN_OR_RETURN(RepoListing listing, FetchListing(fixed));
  PullReport report;
  report.commit = listing.commit;
  VOXRT_ASSIGN_OR_RETURN(report.files, SelectCheckpointFiles(listing));
  std::error_code error;
  std::filesystem::create_directories(fixed.directory, error);
  if (error)
    return Status(StatusCode::kIo, fmt::format("cannot create the folder {}: {}", fixed.directory, error.message()));
  for (const RemoteFile& file : report.files) {
    TransferOptions transfer = fixed.transfer;
    if (fixed.progress) {
      transfer.progress = [&](int64_t done, int64_t total) { fixed.progress(file.path, done, total); };
    }
    // The commit, not the branch: all files are of one state of the repository.
    const std::string url =
        fmt::format("{}/{}/resolve/{}/{}", fixed.endpoint, fixed.repo, listing.commit, EscapeForUrl(file.path, true));
    const std::string path = (std::filesystem::path(fixed.directory) / file.path).string();
    VOXRT_RETURN_IF_ERROR(DownloadFile(url, file, path, transfer));
    report.bytes += std::max<int64_t>(0, file.size);
  }
  return report;
}

}  // namespace voxrt::hub
