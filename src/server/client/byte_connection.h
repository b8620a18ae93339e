// ByteConnection: a blocking TCP or TLS client connection that one thread may read while another writes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

struct ssl_st;
struct ssl_ctx_st;

namespace voxrt::server {

struct ServerUrl {
  bool secure = false;
  std::string host;
  int port = 0;
  std::string base;  // path before /v1, without a trailing slash
};
// http, https, ws or wss; a trailing /v1 is understood and left out.
Result<ServerUrl> ParseServerUrl(std::string_view url);

class ByteConnection {
 public:
  // TLS verifies the certificate against the system's authorities, or SSL_CERT_FILE.
  static Result<std::unique_ptr<ByteConnection>> Open(const ServerUrl& url);
  ~ByteConnection();

  Status Write(std::string_view bytes);
  // At least one byte, or 0 at the end.
  Result<size_t> Read(char* buffer, size_t size);
  // From now on a Read that waits for longer than this in all fails with kIo; 0 = it may wait for ever. Begins with
  // kAnswerSeconds.
  void LimitReads(std::chrono::seconds limit);
  // Makes a waiting Read return.
  void Interrupt() { interrupted_ = true; }

  static constexpr int kAnswerSeconds = 10;

 private:
  ByteConnection(int fd, ssl_st* ssl, ssl_ctx_st* context) : fd_(fd), ssl_(ssl), context_(context) {}
  static Result<std::unique_ptr<ByteConnection>> Secure(int fd, const std::string& host);
  bool WaitFor(short events) const;
  bool TooLate() const { return deadline_ && std::chrono::steady_clock::now() > *deadline_; }

  const int fd_;
  ssl_st* const ssl_;
  ssl_ctx_st* const context_;
  std::mutex mutex_;  // of ssl_
  std::atomic<bool> interrupted_{false};
  std::optional<std::chrono::steady_clock::time_point> deadline_;  // of the reader
};

}  // namespace voxrt::server
