#include "server/net/tls.h"

#include <openssl/ssl.h>

namespace voxrt::server {

namespace ssl = boost::asio::ssl;

Status TlsCertificates::Load() {
  boost::system::error_code error;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                       ssl::context::single_dh_use);
  if (SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION) != 1)
    return {StatusCode::kInternal, "this OpenSSL has no TLS 1.2"};
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);  // idle connections cost little
  context->use_certificate_chain_file(cert_file_, error);
  if (error)
    return {StatusCode::kInvalidArgument, "cannot use the TLS certificate " + cert_file_ + ": " + error.message()};
  context->use_private_key_file(key_file_, ssl::context::pem, error);
  if (error) return {StatusCode::kInvalidArgument, "cannot use the TLS key " + key_file_ + ": " + error.message()};
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return {StatusCode::kInvalidArgument,
            "the TLS key " + key_file_ + " does not belong to the certificate " + cert_file_};
  }
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
  return {};
}

std::shared_ptr<ssl::context> TlsCertificates::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace voxrt::server
