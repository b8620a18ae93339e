// An engine on another machine: sessions speak vLLM's realtime protocol to a `voxrt serve` (with its extension for
// token times), so that transcribe and listen work on it with the same outputs.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"

namespace voxrt::server {

struct RemoteOptions {
  std::string url;      // http://HOST:PORT or https://HOST:PORT
  std::string api_key;  // empty: none
  std::string model;    // empty: the server's default
};

// Connects once to learn whether the server is there and what it serves.
Result<std::shared_ptr<engine::Engine>> ConnectRemote(const RemoteOptions& options);

}  // namespace voxrt::server
