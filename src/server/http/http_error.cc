#include "server/http/http_error.h"

#include "server/protocol/json.h"

namespace voxrt::server {

const char* HttpError::type() const {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string HttpError::ErrorObject() const {
  return Dump({{"message", message},
               {"type", type()},
               {"param", param.empty() ? Json(nullptr) : Json(param)},
               {"code", code.empty() ? Json(nullptr) : Json(code)}});
}

}  // namespace voxrt::server
