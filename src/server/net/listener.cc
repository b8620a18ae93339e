#include "server/net/listener.h"

#include <boost/asio/strand.hpp>

#include "base/log.h"
#include "server/net/http_connection.h"

namespace voxrt::server {
namespace {

constexpr int kReceiveBufferBytes = 256 * 1024;  // what a client may send ahead without our having read it
constexpr auto kRetry = std::chrono::milliseconds(50);

}  // namespace

std::shared_ptr<void> AddressCounter::Enter(const std::string& address, int limit) {
  const std::lock_guard lock(shared_->mutex);
  int& count = shared_->counts[address];
  if (limit > 0 && count >= limit) return nullptr;
  ++count;
  return {static_cast<void*>(this), [shared = shared_, address](void*) {
            const std::lock_guard guard(shared->mutex);
            const auto it = shared->counts.find(address);
            if (it != shared->counts.end() && --it->second <= 0) shared->counts.erase(it);
          }};
}

Listener::Listener(asio::io_context& context, std::shared_ptr<ServerState> state, std::shared_ptr<JobPool> jobs,
                   std::shared_ptr<TlsCertificates> certificates, std::shared_ptr<AddressCounter> addresses)
    : context_(context),
      state_(std::move(state)),
      jobs_(std::move(jobs)),
      certificates_(std::move(certificates)),
      addresses_(std::move(addresses)),
      acceptor_(asio::make_strand(context)),
      retry_(acceptor_.get_executor()) {}

Status OpenAcceptor(tcp::acceptor* acceptor, const std::string& host, int port) {
  ErrorCode error;
  const asio::ip::address address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error)
    return {StatusCode::kInvalidArgument,
            "--host '" + host + "' is no address; use 127.0.0.1, 0.0.0.0, ::1, :: or an address of this machine"};
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
  if (!error)
    acceptor->set_option(asio::socket_base::receive_buffer_size(kReceiveBufferBytes),
                         error);  // inherited by what is accepted
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return {StatusCode::kIo, "cannot listen on " + host + " port " + std::to_string(port) + ": " + error.message() +
                                 "; choose another with --port or --tls-port"};
  return {};
}

Status Listener::Open(const std::string& host, int port) {
  VOXRT_RETURN_IF_ERROR(OpenAcceptor(&acceptor_, host, port));
  ErrorCode ignored;
  port_ = acceptor_.local_endpoint(ignored).port();
  return {};
}

void Listener::Run() {
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->Accept(); });
}

void Listener::Close() {
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
    ErrorCode ignored;
    self->acceptor_.close(ignored);
    self->retry_.cancel();
  });
}

void Listener::Accept() {
  if (!acceptor_.is_open()) return;
  // At the limit the kernel's queue holds who comes next; a place that is freed is seen soon.
  const bool full = state_->connections >= state_->options.max_connections;
  if (full) {
    retry_.expires_after(kRetry);
    retry_.async_wait([self = shared_from_this()](ErrorCode error) {
      if (!error) self->Accept();
    });
    return;
  }
  auto socket = std::make_shared<tcp::socket>(asio::make_strand(context_));
  acceptor_.async_accept(
      *socket, [self = shared_from_this(), socket](ErrorCode error) { self->OnAccept(error, std::move(*socket)); });
}

void Listener::OnAccept(ErrorCode error, tcp::socket socket) {
  if (error == asio::error::operation_aborted) return;
  if (error) {  // descriptors used up: wait for some to come back
    Log(LogLevel::kWarning, "http.accept error=\"{}\"", error.message());
    retry_.expires_after(kRetry);
    retry_.async_wait([self = shared_from_this()](ErrorCode failed) {
      if (!failed) self->Accept();
    });
    return;
  }
  ErrorCode ignored;
  const tcp::endpoint remote = socket.remote_endpoint(ignored);
  std::shared_ptr<void> token =
      addresses_->Enter(remote.address().to_string(), state_->options.max_connections_per_address);
  if (token == nullptr) {
    state_->metrics.OnRefused("address");
  } else {
    socket.set_option(tcp::no_delay(true), ignored);
    const std::string name = remote.address().to_string() + ":" + std::to_string(remote.port());
    Transport transport = certificates_ == nullptr ? Transport(std::move(socket))
                                                   : Transport(std::move(socket), certificates_->context());
    transport.Keep(std::move(token));
    const auto executor = transport.get_executor();
    auto connection = std::make_shared<HttpConnection>(state_, jobs_, std::move(transport), name);
    asio::post(executor, [connection = std::move(connection)] { connection->Run(); });
  }
  Accept();
}

}  // namespace voxrt::server
