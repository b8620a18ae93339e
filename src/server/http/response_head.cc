#include "server/http/response_head.h"

#include <fmt/format.h>

namespace voxrt::server {

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 426:
      return "Upgrade Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 507:
      return "Insufficient Storage";
    default:
      return "Unknown";
  }
}

std::string FormatHead(const ResponseHead& head) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: voxrt\r\n", head.status, ReasonPhrase(head.status));
  if (!head.content_type.empty()) text += "Content-Type: " + head.content_type + "\r\n";
  if (head.content_length) {
    if (head.status != 204) text += fmt::format("Content-Length: {}\r\n", *head.content_length);
  } else {
    text += "Transfer-Encoding: chunked\r\n";
  }
  if (!head.keep_alive) text += "Connection: close\r\n";
  for (const auto& [name, value] : head.headers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

std::string FormatChunk(std::string_view bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

}  // namespace voxrt::server
