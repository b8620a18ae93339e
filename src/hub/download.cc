// Design note. Workers take segments one after the other; each asks for the missing tail of its segment and appends
// what arrives, so a broken connection costs nothing but the pause. Three kinds of trouble: transient (no reply, cut
// off, 429, 5xx) is tried again; final (401, 404, lengths that contradict the listing) ends the file at once with the
// reason; "no ranges" (200 instead of 206) makes the file one segment that a single connection fetches from its
// beginning.
#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/sha.h"
#include "hub/part_file.h"

namespace voxrt::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLongestPause = std::chrono::seconds(30);
constexpr int kLongestRetryAfterSeconds = 120;
constexpr auto kStateInterval = std::chrono::seconds(2);
constexpr auto kProgressInterval = std::chrono::milliseconds(100);
constexpr size_t kReadBytes = size_t{1} << 20;

bool IsTransient(long status) { return status == 408 || status == 425 || status == 429 || status >= 500; }

Status StatusError(long status, const std::string& url) {
  if (status == 401 || status == 403) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("the hub refuses access ({}) to {}; accept the model's terms there and set HF_TOKEN", status, url));
  }
  if (status == 404) {
    return Status(StatusCode::kNotFound,
                  fmt::format("not found (404): {}; check the repository name and the revision", url));
  }
  return Status(StatusCode::kUnavailable, fmt::format("the server answered {} for {}", status, url));
}

class Download {
 public:
  Download(const std::string& url, const RemoteFile& file, PartFile* part, const TransferOptions& options)
      : url_(url), file_(file), part_(part), options_(options), last_state_(Clock::now()) {}

  // True in `no_ranges` when the server only sends whole files and the caller should try again with one segment.
  Status Run(bool* no_ranges) {
    const auto count =
        static_cast<size_t>(std::clamp<int64_t>(part_->segments(), 1, std::max(1, options_.connections)));
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    Status saved = part_->SaveState();
    *no_ranges = no_ranges_;
    if (!error_.ok()) return error_;
    return saved;
  }

 private:
  void Work() {
    for (int64_t segment = next_++; segment < part_->segments() && !stopped(); segment = next_++) {
      const Status status = Fetch(segment);
      if (!status.ok()) Stop(status);
    }
  }

  Status Fetch(int64_t segment) {
    int failures = 0;
    while (part_->Present(segment) < part_->SegmentBytes(segment)) {
      const int64_t before = part_->Present(segment);
      std::string trouble;
      std::optional<int> retry_after_s;
      VOXRT_RETURN_IF_ERROR(FetchOnce(segment, &trouble, &retry_after_s));
      if (stopped()) return {};
      if (trouble.empty()) continue;
      failures = part_->Present(segment) > before ? 0 : failures + 1;
      if (failures >= options_.max_failures) {
        return Status(StatusCode::kUnavailable,
                      fmt::format("gave up on {} after {} attempts without a new byte ({}); run the same command "
                                  "again to go on from here",
                                  file_.path, failures, trouble));
      }
      Pause(failures, retry_after_s);
    }
    return {};
  }

  // One request. Not ok: final. Else `trouble` says why it has to be repeated, empty when all went well.
  Status FetchOnce(int64_t segment, std::string* trouble, std::optional<int>* retry_after_s) {
    const int64_t first = part_->SegmentBegin(segment) + part_->Present(segment);
    const int64_t last = part_->SegmentBegin(segment) + part_->SegmentBytes(segment) - 1;
    Status final_error;
    bool checked = false;
    bool wanted = false;
    const auto sink = [&](const HttpReply& reply, std::span<const std::byte> body) {
      if (!checked) {
        checked = true;
        wanted = AcceptReply(reply, segment, first, last, &final_error);
      }
      if (stopped() || !final_error.ok()) return false;
      if (!wanted) return true;  // the text of an error page
      const int64_t room = part_->SegmentBytes(segment) - part_->Present(segment);
      if (static_cast<int64_t>(body.size()) > room) {
        final_error = Status(
            StatusCode::kUnavailable,
            fmt::format("the server sends more bytes of {} than the {} that were asked for; nothing of it is kept",
                        file_.path, last - first + 1));
        return false;
      }
      final_error = part_->Append(segment, body);
      if (final_error.ok()) Report();
      return final_error.ok();
    };
    Result<HttpReply> reply = HttpGet(url_, fmt::format("{}-{}", first, last), options_.http, sink);
    if (!final_error.ok()) return final_error;
    if (!reply.ok()) return reply.status();
    if (stopped()) return {};
    if (reply->status != 0 && reply->status != 200 && reply->status != 206) {
      if (reply->status >= 300 && reply->status < 400) {
        return Status(StatusCode::kUnavailable, fmt::format("the server redirects {} too often or to nowhere ({})",
                                                            url_, reply->transport_error));
      }
      if (!IsTransient(reply->status)) return StatusError(reply->status, url_);
      *trouble = fmt::format("status {}", reply->status);
      int seconds = 0;
      const std::string wait = reply->Header("retry-after");
      if (std::from_chars(wait.data(), wait.data() + wait.size(), seconds).ec == std::errc() && seconds >= 0)
        *retry_after_s = seconds;
      return {};
    }
    if (!reply->transport_error.empty()) {
      *trouble = reply->transport_error;
    } else if (part_->Present(segment) < part_->SegmentBytes(segment)) {
      *trouble = "the server sent fewer bytes than it was asked for";
    }
    return {};
  }

  // Whether the body belongs into the segment.
  bool AcceptReply(const HttpReply& reply, int64_t segment, int64_t first, int64_t last, Status* final_error) {
    if (reply.status == 206) {
      const std::optional<ContentRange> range = ParseContentRange(reply.Header("content-range"));
      if (range.has_value() && range->total != file_.size) {
        *final_error =
            Status(StatusCode::kUnavailable,
                   fmt::format("{} has {} bytes on the server, the listing says {}; run the command again later",
                               file_.path, range->total, file_.size));
      } else if (!range.has_value() || range->first != first || range->last > last) {
        *final_error = Status(StatusCode::kUnavailable,
                              fmt::format("the server answers another range of {} than bytes {}-{} (\"{}\")",
                                          file_.path, first, last, reply.Header("content-range")));
      }
      return final_error->ok();
    }
    if (reply.status == 200) {
      if (part_->segments() > 1) {  // no ranges here: the caller starts again with one segment
        no_ranges_ = true;
        Stop(Status(StatusCode::kUnavailable, "the server does not serve ranges"));
        return false;
      }
      part_->Restart(segment);
      return true;
    }
    return false;
  }

  void Pause(int failures, std::optional<int> retry_after_s) {
    auto pause = std::min<Clock::duration>(
        std::chrono::milliseconds(options_.first_pause_ms) * (1 << std::clamp(failures - 1, 0, 10)), kLongestPause);
    if (retry_after_s.has_value()) pause = std::chrono::seconds(std::min(*retry_after_s, kLongestRetryAfterSeconds));
    const auto until = Clock::now() + pause;
    std::unique_lock lock(mutex_);
    // Wakes up now and then only to look at the caller's cancel flag.
    while (error_.ok() && !cancelled() && Clock::now() < until) {
      stop_.wait_until(lock, std::min(until, Clock::now() + std::chrono::milliseconds(100)));
    }
  }

  void Report() {
    const std::unique_lock lock(report_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const auto now = Clock::now();
    if (options_.progress && now - last_report_ >= kProgressInterval) {
      last_report_ = now;
      options_.progress(part_->PresentInAll(), file_.size);
    }
    if (now - last_state_ >= kStateInterval) {
      last_state_ = now;
      const Status status = part_->SaveState();
      if (!status.ok()) Stop(status);
    }
  }

  void Stop(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    stop_.notify_all();
  }

  bool cancelled() const { return options_.http.cancelled != nullptr && options_.http.cancelled->load(); }

  bool stopped() {
    if (cancelled()) Stop(Status(StatusCode::kCancelled, "cancelled; run the same command again to go on from here"));
    const std::lock_guard lock(mutex_);
    return !error_.ok();
  }

  const std::string& url_;
  const RemoteFile& file_;
  PartFile* part_;
  const TransferOptions& options_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> no_ranges_{false};
  std::mutex mutex_;
  std::condition_variable stop_;
  Status error_;
  std::mutex report_mutex_;
  Clock::time_point last_report_;
  Clock::time_point last_state_;
};

// Size and hash from the server's own headers where the listing has none.
Status AskServer(const std::string& url, RemoteFile* file, const HttpOptions& options) {
  VOXRT_ASSIGN_OR_RETURN(const HttpReply reply, HttpHead(url, options));
  if (reply.status == 0)
    return Status(StatusCode::kUnavailable, fmt::format("no reply from {}: {}", url, reply.transport_error));
  if (reply.status >= 400) return StatusError(reply.status, url);
  std::string size = reply.Header("x-linked-size");
  if (size.empty() && reply.status < 300) size = reply.Header("content-length");
  if (file->size < 0 && std::from_chars(size.data(), size.data() + size.size(), file->size).ec != std::errc())
    file->size = -1;
  const std::string linked = reply.Header("x-linked-etag");
  ApplyEtag(linked.empty() ? reply.Header("etag") : linked, file);
  if (file->size < 0)
    return Status(StatusCode::kUnavailable,
                  fmt::format("the server does not say how long {} is; use another mirror", file->path));
  return {};
}

}  // namespace

Status CheckFileHash(const std::string& path, const RemoteFile& file, const std::atomic<bool>* cancelled) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Status(StatusCode::kIo, fmt::format("cannot read {}", path));
  base::Sha256 sha256;
  base::GitBlobSha1 sha1(static_cast<uint64_t>(std::max<int64_t>(0, file.size)));
  const auto buffer = std::make_unique<std::byte[]>(kReadBytes);
  ssize_t got = 0;
  while ((got = ::read(fd, buffer.get(), kReadBytes)) > 0) {
    const std::span<const std::byte> bytes(buffer.get(), static_cast<size_t>(got));
    if (!file.sha256.empty()) sha256.Update(bytes);
    if (!file.git_sha1.empty()) sha1.Update(bytes);
    if (cancelled != nullptr && cancelled->load()) break;
  }
  ::close(fd);
  if (got < 0) return Status(StatusCode::kIo, fmt::format("cannot read {}", path));
  if (got > 0) return Status(StatusCode::kCancelled, "cancelled; run the same command again to go on from here");
  const auto differs = [&](const std::string& found, const std::string& expected) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("{} is damaged: its hash is {}, expected {}", file.path, found, expected));
  };
  if (!file.sha256.empty()) {
    if (const std::string found = sha256.FinishHex(); found != file.sha256) return differs(found, file.sha256);
  }
  if (!file.git_sha1.empty()) {
    if (const std::string found = sha1.FinishHex(); found != file.git_sha1) return differs(found, file.git_sha1);
  }
  return {};
}

Status DownloadFile(const std::string& url, RemoteFile file, const std::string& path, const TransferOptions& options) {
  if (file.size < 0 || (file.sha256.empty() && file.git_sha1.empty())) {
    VOXRT_RETURN_IF_ERROR(AskServer(url, &file, options.http));
  }
  std::error_code ignored;
  const auto size_on_disk = std::filesystem::file_size(path, ignored);
  const bool has_hash = !file.sha256.empty() || !file.git_sha1.empty();
  if (!ignored && has_hash && static_cast<int64_t>(size_on_disk) == file.size) {
    Status status = CheckFileHash(path, file, options.http.cancelled);
    if (status.ok() || status.code() == StatusCode::kCancelled) return status;
  }
  int64_t segment_bytes = options.segment_bytes;
  std::unique_ptr<PartFile> part;
  for (;;) {
    const PartIdentity identity{file.sha256.empty() ? file.git_sha1 : file.sha256, file.size,
                                std::max<int64_t>(1, segment_bytes)};
    part.reset();
    VOXRT_ASSIGN_OR_RETURN(part, PartFile::Open(path, identity));
    bool no_ranges = false;
    Status status = Download(url, file, part.get(), options).Run(&no_ranges);
    if (no_ranges && segment_bytes < file.size) {
      segment_bytes = file.size;
      continue;
    }
    if (!status.ok()) return status;
    break;
  }
  if (options.progress) options.progress(file.size, file.size);
  VOXRT_RETURN_IF_ERROR(part->Sync());
  Status hash = CheckFileHash(part->part_path(), file, options.http.cancelled);
  if (hash.code() == StatusCode::kCancelled) return hash;
  if (!hash.ok()) {
    part->Discard();
    return Status(StatusCode::kUnavailable, hash.message() + "; it was removed, run the command again");
  }
  return part->Commit();
}

}  // namespace voxrt::hub
