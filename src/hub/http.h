// One HTTP GET through libcurl: redirects followed (the token stays with the first host), ranges, stall detection,
// cancellation. Knows nothing about hubs or files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"

namespace voxrt::hub {

struct HttpOptions {
  std::string token;  // sent as "Authorization: Bearer", never to another host than the URL's
  int connect_timeout_s = 20;
  int stall_timeout_s = 30;                      // less than one byte per second for so long: the transfer ends
  const std::atomic<bool>* cancelled = nullptr;  // polled; may be null
};

struct HttpReply {
  long status = 0;                             // of the last response; 0 = none arrived
  std::map<std::string, std::string> headers;  // of the last response, names in lower case
  std::string transport_error;                 // why the transfer ended early; empty = it is complete

  std::string Header(const std::string& lower_case_name) const;
};

// GETs `url` (http or https; an https URL is never redirected to http). `range` is "first-last" or empty. Body bytes go
// to `sink`, which sees status and headers and returns false to end the transfer. Not ok only for kCancelled and for a
// URL or token that cannot be sent; what the server or the network does is in the reply.
Result<HttpReply> HttpGet(const std::string& url, const std::string& range, const HttpOptions& options,
                          base::FunctionRef<bool(const HttpReply& reply, std::span<const std::byte> body)> sink);

// The response of `url` itself, redirects not followed, no body.
Result<HttpReply> HttpHead(const std::string& url, const HttpOptions& options);

}  // namespace voxrt::hub
