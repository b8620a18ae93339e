#include "server/http/http_error.h"

#include <algorithm>

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

std::string WithoutFlags(const std::string& message) {
  std::string kept;
  for (size_t begin = 0; begin <= message.size();) {
    const size_t end = std::min(message.find("; ", begin), message.size());
    const std::string clause = message.substr(begin, end - begin);
    if (clause.find(" --") == std::string::npos && !clause.starts_with("--"))
      kept += (kept.empty() ? "" : "; ") + clause;
    begin = end + 2;
  }
  return kept;
}

}  // namespace voxrt::server
