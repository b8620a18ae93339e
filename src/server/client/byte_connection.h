// ByteConnection: a blocking TCP or TLS client connection that one thread may read while another writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
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
  // Makes a waiting Read return.
  void Interrupt() { interrupted_ = true; }

 private:
  ByteConnection(int fd, ssl_st* ssl, ssl_ctx_st* context) : fd_(fd), ssl_(ssl), context_(context) {}
  static Result<std::unique_ptr<ByteConnection>> Secure(int fd, const std::string& host);
  bool WaitFor(short events) const;

  const int fd_;
  ssl_st* const ssl_;
  ssl_ctx_st* const context_;
  std::mutex mutex_;  // of ssl_
  std::atomic<bool> interrupted_{false};
};

}  // namespace voxrt::server
