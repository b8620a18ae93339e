// HTTP/1.1 response heads as text. Bodies are either of known length or chunked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace voxrt::server {

struct ResponseHead {
  int status = 200;
  std::string content_type;
  std::optional<uint64_t> content_length;  // absent: chunked
  bool keep_alive = true;
  std::vector<std::pair<std::string, std::string>> headers;
};

std::string FormatHead(const ResponseHead& head);
const char* ReasonPhrase(int status);
// One chunk of a chunked body; an empty string gives the last chunk.
std::string FormatChunk(std::string_view bytes);

}  // namespace voxrt::server
