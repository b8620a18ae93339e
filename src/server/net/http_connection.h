// HttpConnection: one TCP connection while it speaks HTTP: reads requests, routes them, streams uploads to disk and
// answers back, and hands the socket over when a client upgrades to WebSocket.
#pragma once

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http_error.h"
#include "server/http/multipart.h"
#include "server/http/response_head.h"
#include "server/http/transcription_form.h"
#include "server/http/uri.h"
#include "server/net/transport.h"
#include "server/state.h"
#include "server/transcription_job.h"
#include "server/upload_file.h"

namespace voxrt::server {

class HttpConnection : public std::enable_shared_from_this<HttpConnection>, public Drainable {
 public:
  HttpConnection(std::shared_ptr<ServerState> state, std::shared_ptr<JobPool> jobs, Transport transport,
                 std::string remote);
  ~HttpConnection() override;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  void Run();

  // Registered while an upload is received and answered. A drain lets it finish.
  void Drain() override {}
  void EndNow() override;
  void Abort() override;

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;
  using Headers = std::vector<std::pair<std::string, std::string>>;
  struct Upload;

  // Reading and routing (http_connection.cc).
  void ReadHeader(double timeout_s);
  void OnHeader(ErrorCode error);
  void OnHeaderFailed(ErrorCode error);
  void Route();
  void RouteGet(const Uri& uri);
  void RouteOperations(const Uri& uri);
  void RouteRealtime(const Uri& uri);
  void RoutePreflight();
  bool CheckAccess();
  std::string Field(const char* name) const;
  bool is_get() const;

  // Answering.
  Headers CommonHeaders() const;
  void Answer(int status, std::string content_type, const std::string& body, Headers headers = {});
  void Refuse(const HttpError& error, Headers headers = {});
  void RefuseFull();
  void RefuseBusy(const char* reason, std::string message, int retry_after_s);
  void Send(std::string bytes);
  void OnSent(ErrorCode error);
  void AnswerDone();
  void DiscardBody();
  void Close();
  void Deadline(double seconds);

  // Uploads (http_upload.cc).
  void StartUpload();
  void ReadBody();
  void OnBody(ErrorCode error, size_t bytes);
  void OnBodyEnd();
  void CheckProgress();
  void StartJob();
  void OnJobOutput(std::string bytes, bool done);
  void OnJobFailure(const HttpError& error);
  void SendJobHead();
  void KeepAlive();
  void WatchPeer();
  void EndUpload();
  void RefuseForDrain();
  bool UploadReceived() const;

  const std::shared_ptr<ServerState> state_;
  const std::shared_ptr<JobPool> jobs_;
  Transport transport_;
  const std::string remote_;
  asio::steady_timer deadline_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::array<char, 64 * 1024> chunk_{};
  std::string request_id_;
  std::deque<std::string> out_;
  bool writing_ = false;
  bool keep_alive_ = true;
  bool answered_ = false;  // the answer is complete in out_
  bool discarding_ = false;
  int64_t discarded_bytes_ = 0;
  bool closed_ = false;
  bool reading_ = false;      // a read of the parser is pending
  bool watching_ = false;     // a read that only looks whether the client is still there
  bool next_wanted_ = false;  // that read is the first of the next request
  std::unique_ptr<Upload> upload_;
};

}  // namespace voxrt::server
