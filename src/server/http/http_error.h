// An HTTP refusal in OpenAI's shape: {"error":{"message","type","param","code"}}.
#pragma once

#include <string>

namespace voxrt::server {

struct HttpError {
  int status = 500;
  std::string message;
  std::string param;  // empty: null
  std::string code;   // empty: null

  // invalid_request_error, authentication_error, rate_limit_error or server_error, from the status.
  const char* type() const;
  // The JSON value of "error".
  std::string ErrorObject() const;
  std::string Body() const { return "{\"error\":" + ErrorObject() + "}"; }
};

// `message` for a client of the server: without the clauses (separated by "; ") that advise flags of the command line.
std::string WithoutFlags(const std::string& message);

inline HttpError BadRequest(std::string message, std::string param, std::string code = {}) {
  return {400, std::move(message), std::move(param), std::move(code)};
}

}  // namespace voxrt::server
