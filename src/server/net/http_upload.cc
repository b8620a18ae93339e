// HttpConnection, the part that receives an upload and answers with its transcript.
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>

#include "base/log.h"
#include "server/net/http_connection.h"
#include "server/net/http_upload_state.h"

namespace voxrt::server {

namespace http = boost::beast::http;

namespace {

constexpr int64_t kProgressBytesPerSecond = 1024;
constexpr auto kRetryPlace = std::chrono::milliseconds(100);
constexpr double kWaitForPlaceSeconds = 30.0;
const char* const kTimeOver = "The server is going away and the time to finish is over";

}  // namespace

void HttpConnection::StartUpload() {
  const int64_t limit = state_->options.max_upload_bytes;
  const std::optional<std::string> boundary = MultipartBoundary(Field("Content-Type"));
  if (!boundary) {
    return Refuse({415,
                   "Expected multipart/form-data with a boundary, found Content-Type '" +
                       Field("Content-Type").substr(0, 100) + "'",
                   {},
                   {}});
  }
  const auto length = parser_->content_length();
  if (length && *length > static_cast<uint64_t>(limit)) {
    return Refuse({413, "The upload is " + std::to_string(*length) + " bytes, the limit is " + std::to_string(limit),
                   "file", "file_too_large"});
  }
  if (state_->draining) return RefuseBusy("draining", "The server is going away", 1);
  if (const std::string problem = state_->HealthProblem(); !problem.empty()) return RefuseBusy("unhealthy", problem, 5);
  if (state_->admission->full()) return RefuseFull();
  upload_ = std::make_unique<Upload>(state_->options.temp_dir, *boundary, transport_.get_executor());
  state_->Register(this);
  if (EqualsIgnoreCase(Field("Expect"), "100-continue")) Send("HTTP/1.1 100 Continue\r\n\r\n");
  CheckProgress();
  ReadBody();
}

void HttpConnection::ReadBody() {
  if (closed_ || answered_) return;
  auto& body = parser_->get().body();
  body.data = chunk_.data();
  body.size = chunk_.size();
  body.more = true;
  if (parser_->is_done()) return OnBodyEnd();
  reading_ = true;
  http::async_read_some(transport_, buffer_, *parser_,
                        [self = shared_from_this()](ErrorCode error, size_t bytes) { self->OnBody(error, bytes); });
}

void HttpConnection::OnBody(ErrorCode error, size_t bytes) {
  reading_ = false;
  if (error == http::error::need_buffer) error = {};
  if (discarding_) return error ? Close() : DiscardBody();
  if (closed_ || answered_ || upload_ == nullptr) return;
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension)
    return Refuse(BadRequest("The chunked body is malformed", {}));
  if (error == http::error::partial_message || error == asio::error::eof)  // it may still read
    return Refuse(BadRequest("The body ends early, after " + std::to_string(upload_->received_bytes) + " bytes", {}));
  if (error) return Close();  // the client is gone
  upload_->received_bytes += static_cast<int64_t>(bytes);
  const size_t got = chunk_.size() - parser_->get().body().size;
  const Status status = upload_->multipart.Push(std::string_view(chunk_.data(), got));
  if (status.code() == StatusCode::kIo) {
    Log(LogLevel::kError, "http.upload id={} error=\"{}\"", request_id_, status.message());
    return Refuse({507, "The upload cannot be stored on this server", {}, "storage_full"});
  }
  if (!status.ok()) return Refuse(BadRequest(status.message(), {}));
  if (upload_->received_bytes > state_->options.max_upload_bytes + (1 << 20)) {
    return Refuse(
        {413, "The upload is larger than the limit of " + std::to_string(state_->options.max_upload_bytes) + " bytes",
         "file", "file_too_large"});
  }
  ReadBody();
}

// An upload must bring 1 KiB a second, looked at every so often.
void HttpConnection::CheckProgress() {
  const double period = state_->options.body_progress_s;
  deadline_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(period * 1000)));
  deadline_.async_wait([weak = weak_from_this(), period](ErrorCode error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->closed_ || self->upload_ == nullptr || self->upload_->body_complete) return;
    Upload& upload = *self->upload_;
    if (static_cast<double>(upload.received_bytes - upload.progress_bytes) <
        period * static_cast<double>(kProgressBytesPerSecond)) {
      self->keep_alive_ = false;
      return self->Refuse({408, "The upload is too slow: expected at least 1 KiB a second", {}, "request_timeout"},
                          {{"x-should-retry", "false"}});
    }
    upload.progress_bytes = upload.received_bytes;
    self->CheckProgress();
  });
}

void HttpConnection::OnBodyEnd() {
  upload_->body_complete = true;
  deadline_.cancel();
  const Status status = upload_->multipart.Finish();
  if (!status.ok()) return Refuse(BadRequest(status.message(), {}));
  std::variant<TranscriptionRequest, HttpError> request =
      upload_->form.Check(state_->NewSessionConfig(), Field("User-Agent"));
  if (const auto* error = std::get_if<HttpError>(&request)) return Refuse(*error);
  upload_->job =
      std::make_shared<TranscriptionJob>(state_, std::get<TranscriptionRequest>(std::move(request)), upload_->file);
  upload_->queued = Clock::now();
  ++state_->uploads_waiting;
  upload_->counted_waiting = true;
  WatchPeer();
  StartJob();
}

// Waits a while for a place, so that a burst of files is served and a full server still answers.
void HttpConnection::StartJob() {
  if (closed_ || answered_ || upload_ == nullptr) return;
  upload_->lease = state_->admission->TryEnter();
  const double waited_s = std::chrono::duration<double>(Clock::now() - upload_->queued).count();
  if (!upload_->lease && waited_s < kWaitForPlaceSeconds) {
    upload_->keep_alive.expires_after(kRetryPlace);
    upload_->keep_alive.async_wait([weak = weak_from_this()](ErrorCode error) {
      const auto self = weak.lock();
      if (!error && self != nullptr) self->StartJob();
    });
    return;
  }
  --state_->uploads_waiting;
  upload_->counted_waiting = false;
  state_->metrics.OnUpload(upload_->lease.has_value(), waited_s);
  if (!upload_->lease) return RefuseFull();
  state_->metrics.OnSessionAdmitted("http");
  upload_->waiting_since = Clock::now();
  std::weak_ptr<HttpConnection> weak = weak_from_this();
  const auto executor = transport_.get_executor();
  upload_->job->SetCallbacks(
      [weak, executor](std::string bytes, bool done) {
        asio::post(executor, [weak, bytes = std::move(bytes), done]() mutable {
          if (const auto self = weak.lock()) self->OnJobOutput(std::move(bytes), done);
        });
      },
      [weak, executor](const HttpError& error) {
        asio::post(executor, [weak, error] {
          if (const auto self = weak.lock()) self->OnJobFailure(error);
        });
      });
  jobs_->Add(upload_->job);
  if (upload_->job->writer().streams()) SendJobHead();
  KeepAlive();
}

void HttpConnection::SendJobHead() {
  if (upload_->head_sent) return;
  upload_->head_sent = true;
  ResponseHead head{.status = 200,
                    .content_type = upload_->job->writer().content_type(),
                    .content_length = std::nullopt,
                    .keep_alive = keep_alive_,
                    .headers = CommonHeaders()};
  head.headers.emplace_back("Cache-Control", "no-cache");
  if (upload_->job->writer().streams()) head.headers.emplace_back("X-Accel-Buffering", "no");
  state_->metrics.OnRequest(200);
  Send(FormatHead(head));
}

// Comments in streams, white space before slow JSON: clients and proxies give up on silent connections.
void HttpConnection::KeepAlive() {
  upload_->keep_alive.expires_after(std::chrono::milliseconds(static_cast<int64_t>(state_->options.sse_ping_s * 1000)));
  upload_->keep_alive.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->closed_ || self->upload_ == nullptr || self->answered_) return;
    TranscriptionWriter& writer = self->upload_->job->writer();
    const double waited_s = std::chrono::duration<double>(Clock::now() - self->upload_->waiting_since).count();
    if (writer.streams()) {
      self->Send(FormatChunk(": ping\n\n"));
    } else if (writer.padding_allowed() && waited_s >= self->state_->options.padding_after_s) {
      self->SendJobHead();
      self->Send(FormatChunk(" "));
    }
    self->KeepAlive();
  });
}

void HttpConnection::OnJobOutput(std::string bytes, bool done) {
  if (closed_ || answered_ || upload_ == nullptr) return;
  // What remains is the client's reading, which may take long.
  if (done) upload_->lease.reset();
  if (!upload_->head_sent) {  // the whole body at once
    Answer(200, upload_->job->writer().content_type(), bytes);
    return;
  }
  if (!bytes.empty()) bytes = FormatChunk(bytes);
  if (done) {
    bytes += FormatChunk({});
    answered_ = true;
  }
  Send(std::move(bytes));
}

void HttpConnection::OnJobFailure(const HttpError& error) {
  if (closed_ || answered_ || upload_ == nullptr) return;
  upload_->lease.reset();
  Log(LogLevel::kWarning, "http.upload id={} status={} error=\"{}\"", request_id_, error.status, error.message);
  if (!upload_->head_sent) {
    if (error.status == 503) return RefuseBusy("engine", error.message, 1);
    return Refuse(error);
  }
  const std::string body = upload_->job->writer().streams() ? TranscriptionWriter::StreamError(error) : error.Body();
  answered_ = true;
  keep_alive_ = false;
  Send(FormatChunk(body) + FormatChunk({}));
}

// While the transcript is made nothing is read but a sign that the client has gone, or the start of its next request.
void HttpConnection::WatchPeer() {
  if (watching_) return;
  watching_ = true;
  transport_.async_read_some(buffer_.prepare(1024), [self = shared_from_this()](ErrorCode error, size_t bytes) {
    self->watching_ = false;
    if (error) return self->Close();
    self->buffer_.commit(bytes);
    if (self->discarding_) return self->DiscardBody();
    if (!self->next_wanted_) return;
    self->next_wanted_ = false;
    self->ReadHeader(self->state_->options.handshake_timeout_s);
  });
}

// What has no place yet is refused; what is being transcribed may still end.
void HttpConnection::EndNow() {
  auto shared = weak_from_this().lock();
  if (shared == nullptr) return;
  asio::post(transport_.get_executor(), [self = std::move(shared)] {
    if (self->upload_ != nullptr && !self->upload_->lease) self->RefuseForDrain();
  });
}

void HttpConnection::Abort() {
  auto shared = weak_from_this().lock();
  if (shared == nullptr) return;
  asio::post(transport_.get_executor(), [self = std::move(shared)] {
    if (self->upload_ == nullptr) return;
    if (self->answered_) ++self->state_->cut;  // the client does not read its answer
    self->RefuseForDrain();
  });
}

bool HttpConnection::UploadReceived() const { return upload_ != nullptr && upload_->body_complete; }

void HttpConnection::RefuseForDrain() {
  if (closed_ || answered_) return;
  ++state_->cut;
  if (upload_->head_sent) return OnJobFailure({503, kTimeOver, {}, "draining"});
  RefuseBusy("draining", kTimeOver, 1);
}

void HttpConnection::EndUpload() {
  if (upload_->counted_waiting) --state_->uploads_waiting;
  if (upload_->job != nullptr) upload_->job->Cancel();
  upload_.reset();
}

}  // namespace voxrt::server
