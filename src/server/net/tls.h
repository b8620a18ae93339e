// TLS certificates: loaded at start, loaded again on demand; connections keep what they began with.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

namespace voxrt::server {

class TlsCertificates {
 public:
  TlsCertificates(std::string cert_file, std::string key_file)
      : cert_file_(std::move(cert_file)), key_file_(std::move(key_file)) {}
  // Reads both files; when that fails the old ones stay in use.
  Status Load();
  std::shared_ptr<boost::asio::ssl::context> context() const;

 private:
  const std::string cert_file_, key_file_;
  mutable std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace voxrt::server
