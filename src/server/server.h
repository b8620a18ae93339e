// Server: listeners, I/O threads, drain. Owns everything under it; an engine comes in, nothing else is needed.
//
//   auto server = Server::Create(options, engine);
//   (*server)->Run();   // until SIGTERM or SIGINT (drained) or Drain/Stop from another thread
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/engine.h"
#include "server/options.h"

namespace voxrt::server {

class Server {
 public:
  // Whether the ports are free and the certificate is usable, to be asked before a model is loaded for minutes. Same
  // errors as Create.
  static Status CheckAddresses(const ServerOptions& options);
  // Binds the ports. kInvalidArgument or kIo says which option or port it was.
  static Result<std::unique_ptr<Server>> Create(ServerOptions options, std::shared_ptr<engine::Engine> engine);
  virtual ~Server() = default;

  // The ports really bound; -1 = closed.
  virtual int port() const = 0;
  virtual int tls_port() const = 0;

  // With signals, SIGTERM and SIGINT drain (the second one stops at once) and SIGHUP reads the certificate again.
  virtual void Run(bool handle_signals) = 0;
  // Any thread. Drain: nobody new, running utterances finish up to the limit. Stop: now.
  virtual void Drain() = 0;
  virtual void Stop() = 0;
  // True when the engine was lost: the process should end so that its supervisor starts it anew.
  virtual bool engine_lost() const = 0;
};

}  // namespace voxrt::server
