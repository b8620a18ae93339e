#include "server/client/byte_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace voxrt::server {
namespace {

constexpr int kPollMs = 100;

std::string TlsError() {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  return text;
}

}  // namespace

Result<ServerUrl> ParseServerUrl(std::string_view url) {
  const auto bad = [url] {
    return Status(StatusCode::kInvalidArgument,
                  "--server '" + std::string(url) +
                      "' is no address of a server; expected http://HOST:PORT or https://HOST:PORT");
  };
  ServerUrl parsed;
  const size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return bad();
  const std::string_view scheme = url.substr(0, scheme_end);
  parsed.secure = scheme == "https" || scheme == "wss";
  if (!parsed.secure && scheme != "http" && scheme != "ws") return bad();
  std::string_view rest = url.substr(scheme_end + 3);
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  parsed.port = parsed.secure ? 443 : 80;
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const std::string port(authority.substr(colon + 1));
    parsed.port = 0;
    for (const char c : port)
      parsed.port = c >= '0' && c <= '9' && parsed.port < 100000 ? parsed.port * 10 + (c - '0') : 1000000;
    if (port.empty() || parsed.port < 1 || parsed.port > 65535) return bad();
    authority = authority.substr(0, colon);
  }
  if (authority.size() > 2 && authority.front() == '[' && authority.back() == ']')
    authority = authority.substr(1, authority.size() - 2);
  if (authority.empty() || authority.find_first_of(" \r\n@?#") != std::string_view::npos) return bad();
  if (path.find_first_of(" \r\n?#") != std::string_view::npos) return bad();
  parsed.host = std::string(authority);
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  parsed.base = std::string(path);
  return parsed;
}

Result<std::unique_ptr<ByteConnection>> ByteConnection::Open(const ServerUrl& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
  if (failed != 0) return Status(StatusCode::kIo, "cannot find the server " + url.host + ": " + gai_strerror(failed));
  int fd = -1, error = 0;
  for (const addrinfo* entry = found; entry != nullptr && fd < 0; entry = entry->ai_next) {
    fd = socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol);
    if (fd < 0) continue;
    const timeval limit{.tv_sec = kAnswerSeconds, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // also limits connect
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));  // of the TLS handshake
    if (connect(fd, entry->ai_addr, entry->ai_addrlen) == 0) break;
    error = errno;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  if (fd < 0)
    return Status(StatusCode::kIo,
                  "cannot connect to " + url.host + " port " + std::to_string(url.port) + ": " + std::strerror(error));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (url.secure) return Secure(fd, url.host);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::unique_ptr<ByteConnection> connection(new ByteConnection(fd, nullptr, nullptr));
  connection->LimitReads(std::chrono::seconds(kAnswerSeconds));
  return connection;
}

void ByteConnection::LimitReads(std::chrono::seconds limit) {
  deadline_.reset();
  if (limit.count() > 0) deadline_ = std::chrono::steady_clock::now() + limit;
}

Result<std::unique_ptr<ByteConnection>> ByteConnection::Secure(int fd, const std::string& host) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = context == nullptr ? nullptr : SSL_new(context);
  std::unique_ptr<ByteConnection> connection(new ByteConnection(fd, ssl, context));
  if (ssl == nullptr) return Status(StatusCode::kInternal, "TLS is not available: " + TlsError());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_default_verify_paths(context);
  SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
  SSL_set_tlsext_host_name(ssl, host.c_str());
  SSL_set1_host(ssl, host.c_str());
  SSL_set_fd(ssl, fd);
  if (SSL_connect(ssl) != 1) {
    const long verified = SSL_get_verify_result(ssl);
    const std::string why = verified != X509_V_OK ? X509_verify_cert_error_string(verified) : TlsError();
    return Status(StatusCode::kIo,
                  "no TLS connection to " + host + ": " + why + " (SSL_CERT_FILE names further authorities)");
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  connection->LimitReads(std::chrono::seconds(kAnswerSeconds));
  return connection;
}

ByteConnection::~ByteConnection() {
  if (ssl_ != nullptr) {
    SSL_shutdown(ssl_);
    SSL_free(ssl_);
  }
  if (context_ != nullptr) SSL_CTX_free(context_);
  close(fd_);
}

// False when interrupted, or when the reader has waited for too long.
bool ByteConnection::WaitFor(short events) const {
  while (!interrupted_ && !(events == POLLIN && TooLate())) {
    pollfd entry{.fd = fd_, .events = events, .revents = 0};
    if (poll(&entry, 1, kPollMs) > 0) return true;
  }
  return false;
}

Status ByteConnection::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = 0;
    short wanted = POLLOUT;
    if (ssl_ != nullptr) {
      const std::lock_guard lock(mutex_);
      n = SSL_write(ssl_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)));
      if (n <= 0) {
        const int error = SSL_get_error(ssl_, static_cast<int>(n));
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
          return {StatusCode::kIo, "the connection to the server was lost"};
        if (error == SSL_ERROR_WANT_READ) wanted = POLLIN;
      }
    } else {
      n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR)
        return {StatusCode::kIo, std::string("the connection to the server was lost: ") + std::strerror(errno)};
    }
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (!WaitFor(wanted)) {
      return {StatusCode::kCancelled, "interrupted"};
    }
  }
  return {};
}

Result<size_t> ByteConnection::Read(char* buffer, size_t size) {
  for (;;) {
    if (ssl_ != nullptr) {
      const std::lock_guard lock(mutex_);
      const int n = SSL_read(ssl_, buffer, static_cast<int>(size));
      if (n > 0) return static_cast<size_t>(n);
      const int error = SSL_get_error(ssl_, n);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return static_cast<size_t>(0);
    } else {
      const ssize_t n = recv(fd_, buffer, size, 0);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EAGAIN && errno != EINTR)
        return Status(StatusCode::kIo, std::string("the connection to the server was lost: ") + std::strerror(errno));
    }
    if (!WaitFor(POLLIN)) {
      if (interrupted_) return Status(StatusCode::kCancelled, "interrupted");
      return Status(StatusCode::kIo, "the server gave no answer within " + std::to_string(kAnswerSeconds) + " s");
    }
  }
}

}  // namespace voxrt::server
