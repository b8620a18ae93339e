// Transport: a TCP connection with or without TLS as one type, so that HTTP and WebSocket code is compiled once. Also
// what Beast needs to end a WebSocket on it.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/role.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace voxrt::server {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Transport {
 public:
  using executor_type = tcp::socket::executor_type;

  explicit Transport(tcp::socket socket) : plain_(std::move(socket)) {}
  Transport(tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
      : context_(std::move(context)),
        tls_(std::make_unique<asio::ssl::stream<tcp::socket>>(std::move(socket), *context_)) {}
  Transport(Transport&&) = default;
  Transport& operator=(Transport&&) = delete;

  executor_type get_executor() { return socket().get_executor(); }
  tcp::socket& socket() { return tls_ != nullptr ? tls_->next_layer() : *plain_; }
  bool secure() const { return tls_ != nullptr; }
  // Bytes that were read too far by who had the connection before: the next reads return them first.
  void Unread(std::string bytes) { unread_ = std::move(bytes); }
  // How often anything was handed to the socket: tells a write that never began from one that was cut.
  int64_t writes_started() const { return writes_started_; }
  // Something that lives as long as the connection.
  void Keep(std::shared_ptr<void> token) { token_ = std::move(token); }

  template <class Handler>
  void AsyncHandshake(Handler&& handler) {
    tls_->async_handshake(asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  // Ends the sending direction; TLS says goodbye first.
  template <class Handler>
  void AsyncShutdown(Handler&& handler) {
    if (tls_ != nullptr) {
      tls_->async_shutdown(std::forward<Handler>(handler));
    } else {
      ErrorCode ignored;
      plain_->shutdown(tcp::socket::shutdown_send, ignored);
      asio::post(get_executor(), [handler = std::forward<Handler>(handler)]() mutable { handler(ErrorCode()); });
    }
  }
  void Close() {
    ErrorCode ignored;
    socket().close(ignored);
  }

  template <class Buffers, class Token>
  BOOST_ASIO_INITFN_RESULT_TYPE(Token, void(ErrorCode, std::size_t))
  async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::size_t)>(
        [this](auto&& handler, const Buffers& to) {
          if (!unread_.empty()) {
            const std::size_t count = asio::buffer_copy(to, asio::buffer(unread_));
            unread_.erase(0, count);
            asio::post(get_executor(),
                       boost::beast::bind_front_handler(std::forward<decltype(handler)>(handler), ErrorCode(), count));
          } else if (tls_ != nullptr) {
            tls_->async_read_some(to, std::forward<decltype(handler)>(handler));
          } else {
            plain_->async_read_some(to, std::forward<decltype(handler)>(handler));
          }
        },
        token, buffers);
  }
  template <class Buffers, class Token>
  BOOST_ASIO_INITFN_RESULT_TYPE(Token, void(ErrorCode, std::size_t))
  async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::size_t)>(
        [this](auto&& handler, const Buffers& from) {
          ++writes_started_;
          if (tls_ != nullptr) {
            tls_->async_write_some(from, std::forward<decltype(handler)>(handler));
          } else {
            plain_->async_write_some(from, std::forward<decltype(handler)>(handler));
          }
        },
        token, buffers);
  }

 private:
  std::shared_ptr<void> token_;
  std::string unread_;
  int64_t writes_started_ = 0;
  std::optional<tcp::socket> plain_;
  std::shared_ptr<asio::ssl::context> context_;
  std::unique_ptr<asio::ssl::stream<tcp::socket>> tls_;
};

// Found by Beast through argument-dependent lookup.
inline void beast_close_socket(Transport& transport) { transport.Close(); }

inline void teardown(boost::beast::role_type, Transport& transport, ErrorCode& error) {
  transport.Close();
  error = {};
}

template <class Handler>
void async_teardown(boost::beast::role_type, Transport& transport, Handler&& handler) {
  transport.AsyncShutdown(std::forward<Handler>(handler));
}

}  // namespace voxrt::server
