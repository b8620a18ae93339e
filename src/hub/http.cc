#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

namespace voxrt::hub {
namespace {

constexpr long kMaxRedirects = 10;

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};

using Sink = base::FunctionRef<bool(const HttpReply&, std::span<const std::byte>)>;

struct Transfer {
  HttpReply reply;
  const Sink* sink = nullptr;
  const std::atomic<bool>* cancelled = nullptr;
};

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  std::string_view line(data, size * count);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  HttpReply& reply = transfer->reply;
  if (line.starts_with("HTTP/")) {  // a new response (after a redirect, or 100 Continue)
    reply.headers.clear();
    const size_t space = line.find(' ');
    reply.status = 0;
    if (space != std::string_view::npos)
      std::from_chars(line.data() + space + 1, line.data() + line.size(), reply.status);
    return size * count;
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    reply.headers[name] = std::string(value);
  }
  return size * count;
}

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const auto bytes = std::as_bytes(std::span(data, size * count));
  return (*transfer->sink)(transfer->reply, bytes) ? bytes.size() : 0;
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto* transfer = static_cast<const Transfer*>(user);
  return transfer->cancelled != nullptr && transfer->cancelled->load(std::memory_order_relaxed) ? 1 : 0;
}

Result<std::unique_ptr<CURL, CurlDeleter>> MakeHandle(const std::string& url, const HttpOptions& options,
                                                      Transfer* transfer) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  std::unique_ptr<CURL, CurlDeleter> curl(started == CURLE_OK ? curl_easy_init() : nullptr);
  if (curl == nullptr) return Status(StatusCode::kInternal, "libcurl cannot be started");
  const bool https = url.starts_with("https://");
  if (!https && !url.starts_with("http://")) {
    return Status(StatusCode::kInvalidArgument, fmt::format("'{}' is no http or https address", url));
  }
  for (const char c : options.token) {
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
      return Status(StatusCode::kInvalidArgument,
                    "the access token holds a character that cannot be sent; copy it again");
    }
  }
  CURL* h = curl.get();
  curl_easy_setopt(h, CURLOPT_URL, url.c_str());
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https");
  curl_easy_setopt(h, CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(h, CURLOPT_USERAGENT, "voxrt");
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_timeout_s));
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout_s));
  if (!options.token.empty()) {
    curl_easy_setopt(h, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, options.token.c_str());
  }
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, transfer);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, transfer);
  curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, OnProgress);
  curl_easy_setopt(h, CURLOPT_XFERINFODATA, transfer);
  return curl;
}

Result<HttpReply> Perform(CURL* curl, Transfer* transfer) {
  const CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_ABORTED_BY_CALLBACK) return Status(StatusCode::kCancelled, "cancelled");
  if (code != CURLE_OK) transfer->reply.transport_error = curl_easy_strerror(code);
  return std::move(transfer->reply);
}

}  // namespace

std::string HttpReply::Header(const std::string& lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  return found == headers.end() ? std::string() : found->second;
}

Result<HttpReply> HttpGet(const std::string& url, const std::string& range, const HttpOptions& options, Sink sink) {
  Transfer transfer;
  transfer.sink = &sink;
  transfer.cancelled = options.cancelled;
  VOXRT_ASSIGN_OR_RETURN(auto curl, MakeHandle(url, options, &transfer));
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  if (!range.empty()) curl_easy_setopt(curl.get(), CURLOPT_RANGE, range.c_str());
  return Perform(curl.get(), &transfer);
}

Result<HttpReply> HttpHead(const std::string& url, const HttpOptions& options) {
  Transfer transfer;
  const auto ignore = [](const HttpReply&, std::span<const std::byte>) { return true; };
  const Sink sink(ignore);
  transfer.sink = &sink;
  transfer.cancelled = options.cancelled;
  VOXRT_ASSIGN_OR_RETURN(auto curl, MakeHandle(url, options, &transfer));
  curl_easy_setopt(curl.get(), CURLOPT_NOBODY, 1L);
  return Perform(curl.get(), &transfer);
}

}  // namespace voxrt::hub
