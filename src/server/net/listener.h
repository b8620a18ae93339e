// Listener: accepts connections on one port and keeps their number within the limits.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "server/net/tls.h"
#include "server/net/transport.h"
#include "server/state.h"
#include "server/transcription_job.h"

namespace voxrt::server {

// Connections per address; thread-safe.
class AddressCounter {
 public:
  // nullptr when the address has `limit` already (0 = none); else a token whose end counts it out.
  std::shared_ptr<void> Enter(const std::string& address, int limit);

 private:
  struct Shared {
    std::mutex mutex;
    std::map<std::string, int> counts;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// Binds and listens; kInvalidArgument or kIo says what is wrong with the host or the port.
Status OpenAcceptor(tcp::acceptor* acceptor, const std::string& host, int port);

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // `certificates` null: plain.
  Listener(asio::io_context& context, std::shared_ptr<ServerState> state, std::shared_ptr<JobPool> jobs,
           std::shared_ptr<TlsCertificates> certificates, std::shared_ptr<AddressCounter> addresses);
  Status Open(const std::string& host, int port);
  void Run();
  void Close();
  int port() const { return port_; }

 private:
  void Accept();
  void OnAccept(ErrorCode error, tcp::socket socket);

  asio::io_context& context_;
  const std::shared_ptr<ServerState> state_;
  const std::shared_ptr<JobPool> jobs_;
  const std::shared_ptr<TlsCertificates> certificates_;
  const std::shared_ptr<AddressCounter> addresses_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  int port_ = -1;
};

}  // namespace voxrt::server
