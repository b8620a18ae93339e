#include "server/net/http_connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <limits>

#include "base/log.h"
#include "server/http/model_card.h"
#include "server/net/http_upload_state.h"
#include "server/net/realtime_connection.h"
#include "server/page/page.h"
#include "server/status_page.h"

#ifndef VOXRT_VERSION
#define VOXRT_VERSION "unknown"
#endif

namespace voxrt::server {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr int64_t kDiscardBytes = 64LL << 20;
constexpr double kDiscardSeconds = 5.0;

std::string_view ToView(beast::string_view text) { return {text.data(), text.size()}; }

bool IsRealtimePath(const std::string& path) {
  return path == "/v1/realtime" || path == "/v1/audio/transcriptions/realtime";
}
bool IsOperationsPath(const std::string& path) {
  return path == "/health" || path == "/ready" || path == "/metrics" || path == "/version" || path == "/ping";
}
bool IsApiPath(const std::string& path) {
  return path == "/v1/models" || path.starts_with("/v1/models/") || path == "/v1/audio/transcriptions";
}
bool IsPagePath(const std::string& path) { return path == "/" || path == "/status" || path == "/status.json"; }

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<ServerState> state, std::shared_ptr<JobPool> jobs, Transport transport,
                               std::string remote)
    : state_(std::move(state)),
      jobs_(std::move(jobs)),
      transport_(std::move(transport)),
      remote_(std::move(remote)),
      deadline_(transport_.get_executor()) {
  ++state_->connections;
}

HttpConnection::~HttpConnection() {
  state_->Unregister(this);
  --state_->connections;
}

void HttpConnection::Run() {
  if (!transport_.secure()) return ReadHeader(state_->options.handshake_timeout_s);
  Deadline(state_->options.handshake_timeout_s);
  transport_.AsyncHandshake([self = shared_from_this()](ErrorCode error) {
    if (error) return self->Close();
    self->ReadHeader(self->state_->options.handshake_timeout_s);
  });
}

// Closes the connection unless something else is awaited by then.
void HttpConnection::Deadline(double seconds) {
  deadline_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  deadline_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->Close();
  });
}

void HttpConnection::Close() {
  if (closed_) return;
  closed_ = true;
  deadline_.cancel();
  if (upload_ != nullptr) EndUpload();
  state_->Unregister(this);
  transport_.Close();
}

void HttpConnection::ReadHeader(double timeout_s) {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(state_->options.max_header_bytes));
  parser_->body_limit(
      std::numeric_limits<uint64_t>::max());  // counted while reading, for an answer instead of an error
  answered_ = false;
  deadline_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)));
  deadline_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->closed_) return;
    if (self->parser_->got_some()) {  // a header that does not end: say so
      self->keep_alive_ = false;
      self->Refuse({408, "The request header took too long", {}, "request_timeout"}, {{"x-should-retry", "false"}});
    } else {
      self->Close();
    }
  });
  reading_ = true;
  http::async_read_header(transport_, buffer_, *parser_,
                          [self = shared_from_this()](ErrorCode error, size_t) { self->OnHeader(error); });
}

void HttpConnection::OnHeader(ErrorCode error) {
  reading_ = false;
  if (discarding_) return error ? Close() : DiscardBody();
  if (closed_ || answered_) return;
  request_id_ = state_->NewId("req");
  if (error) return OnHeaderFailed(error);
  deadline_.cancel();
  keep_alive_ = parser_->get().keep_alive();
  Route();
}

void HttpConnection::OnHeaderFailed(ErrorCode error) {
  keep_alive_ = false;
  if (error == http::error::header_limit)
    return Refuse({431,
                   "The request header is larger than " + std::to_string(state_->options.max_header_bytes) + " bytes",
                   {},
                   {}});
  if (error == http::error::end_of_stream || error.category() != make_error_code(http::error::end_of_stream).category())
    return Close();
  Refuse(BadRequest("The request is no HTTP/1.1: " + error.message(), {}));
}

std::string HttpConnection::Field(const char* name) const { return std::string(ToView(parser_->get()[name])); }
bool HttpConnection::is_get() const {
  return parser_->get().method() == http::verb::get || parser_->get().method() == http::verb::head;
}

void HttpConnection::Route() {
  const std::optional<Uri> uri = ParseUri(ToView(parser_->get().target()));
  if (!uri) return Refuse(BadRequest("The request target cannot be read", {}));
  const http::verb method = parser_->get().method();
  const std::string& path = uri->path;
  const bool known =
      IsRealtimePath(path) || IsOperationsPath(path) || IsApiPath(path) || (state_->options.page && IsPagePath(path));
  if (!known) return Refuse({404, "There is nothing at " + path.substr(0, 200), {}, "not_found"});
  if (method == http::verb::options) return RoutePreflight();
  if (IsOperationsPath(path) || IsPagePath(path)) {
    if (!is_get()) return Refuse({405, "Only GET works here", {}, {}}, {{"Allow", "GET"}});
    return IsPagePath(path) ? RouteGet(*uri) : RouteOperations(*uri);
  }
  if (!CheckAccess()) return;
  if (IsRealtimePath(path)) return RouteRealtime(*uri);
  const bool upload = path == "/v1/audio/transcriptions";
  if (upload != (method == http::verb::post) || (!upload && !is_get())) {
    return Refuse({405, std::string("Only ") + (upload ? "POST" : "GET") + " works here", {}, {}},
                  {{"Allow", upload ? "POST" : "GET"}});
  }
  return upload ? StartUpload() : RouteGet(*uri);
}

bool HttpConnection::CheckAccess() {
  if (!OriginAllowed(Field("Origin"), Field("Host"), state_->options.allowed_origins)) {
    state_->metrics.OnRefused("origin");
    Refuse({403, "The origin " + Field("Origin").substr(0, 200) + " is not allowed", {}, "origin_not_allowed"});
    return false;
  }
  const RequestCredentials credentials{.authorization = Field("Authorization"),
                                       .x_api_key = Field("x-api-key"),
                                       .api_key = Field("api-key"),
                                       .subprotocols = Field("Sec-WebSocket-Protocol")};
  if (state_->keys.Accepts(credentials)) return true;
  state_->metrics.OnRefused("key");
  Refuse({401, "Incorrect or missing API key", {}, "invalid_api_key"}, {{"WWW-Authenticate", "Bearer"}});
  return false;
}

void HttpConnection::RouteGet(const Uri& uri) {
  constexpr std::string_view kModels = "/v1/models/";
  if (uri.path == "/") return Answer(200, "text/html; charset=utf-8", std::string(LivePage()), PageHeaders());
  if (uri.path == "/status") return Answer(200, "text/html; charset=utf-8", std::string(StatusPage()), PageHeaders());
  if (uri.path == "/status.json") return Answer(200, "application/json", StatusJson(*state_));
  const std::string root = state_->engine->info().model_path;
  if (uri.path == "/v1/models") {
    return Answer(200, "application/json", Dump(ModelList(state_->options.model_names, root, state_->created_unix_s)));
  }
  const std::string id = uri.path.substr(kModels.size());
  for (const std::string& name : state_->options.model_names) {
    if (name == id) return Answer(200, "application/json", Dump(ModelCard(id, root, state_->created_unix_s)));
  }
  Refuse({404, "The model `" + id.substr(0, 200) + "` does not exist.", "model", "model_not_found"});
}

void HttpConnection::RouteOperations(const Uri& uri) {
  if (uri.path == "/ping") return Answer(200, "", "");
  if (uri.path == "/version") return Answer(200, "application/json", R"({"version":")" VOXRT_VERSION R"("})");
  if (uri.path == "/metrics")
    return Answer(200, "text/plain; version=0.0.4; charset=utf-8", state_->metrics.Text(state_->Snapshot()));
  if (uri.path == "/health") {
    const std::string problem = state_->HealthProblem();
    return problem.empty() ? Answer(200, "", "") : Refuse({503, problem, {}, "unhealthy"});
  }
  const std::string problem = state_->ReadyProblem();
  if (!problem.empty()) return Refuse({503, "Not ready: " + problem, {}, "not_ready"}, {{"Retry-After", "1"}});
  const Json body = {
      {"status", "ready"}, {"sessions", state_->admission->taken()}, {"places", state_->admission->limit()}};
  Answer(200, "application/json", Dump(body));
}

void HttpConnection::RoutePreflight() {
  if (state_->options.allowed_origins.empty() ||
      !OriginAllowed(Field("Origin"), Field("Host"), state_->options.allowed_origins)) {
    return Refuse({403, "The origin is not allowed", {}, "origin_not_allowed"});
  }
  Headers headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"}, {"Access-Control-Max-Age", "600"}};
  if (const std::string wanted = Field("Access-Control-Request-Headers"); !wanted.empty())
    headers.emplace_back("Access-Control-Allow-Headers", wanted);
  Answer(204, "", "", std::move(headers));
}

void HttpConnection::RouteRealtime(const Uri& uri) {
  const auto& request = parser_->get();
  if (!beast::websocket::is_upgrade(request)) {
    return Refuse({426, "This address speaks WebSocket: connect with a WebSocket client", {}, "upgrade_required"},
                  {{"Upgrade", "websocket"}});
  }
  // Beast would refuse these too, in its own words and after a place was taken.
  if (Field("Sec-WebSocket-Version") != "13") {
    return Refuse({426, "This address speaks WebSocket version 13", {}, "upgrade_required"},
                  {{"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"}});
  }
  if (Field("Sec-WebSocket-Key").empty() || Field("Sec-WebSocket-Key").size() > 24)
    return Refuse(BadRequest("Sec-WebSocket-Key must be 16 bytes in base64", "Sec-WebSocket-Key"));
  if (uri.Query("call_id") != nullptr) return Refuse({404, "Calls do not exist here", "call_id", "not_found"});
  const SubprotocolChoice subprotocol = ChooseSubprotocol(Field("Sec-WebSocket-Protocol"));
  if (subprotocol.only_credentials)
    return Refuse(BadRequest("Offer the subprotocol 'realtime' besides the key", "Sec-WebSocket-Protocol"));
  RealtimeStart start;
  start.hints.mistral_path = uri.path != "/v1/realtime";
  start.hints.intent = uri.Query("intent") != nullptr;
  start.hints.beta_header = !Field("OpenAI-Beta").empty() || subprotocol.beta;
  start.hints.realtime_subprotocol = subprotocol.realtime;
  start.subprotocol = subprotocol.echo;
  start.remote = remote_;
  start.headers = {{"x-request-id", request_id_}};
  if (const std::string* model = uri.Query("model")) start.hints.model = *model;
  const bool model_known = start.hints.model.empty() || state_->NewSessionConfig().Serves(start.hints.model);
  if (!model_known && !start.hints.mistral_path) {
    return Refuse(
        {404, "The model `" + start.hints.model.substr(0, 200) + "` does not exist.", "model", "model_not_found"});
  }
  if (state_->draining) return RefuseBusy("draining", "The server is going away", 1);
  if (const std::string problem = state_->HealthProblem(); !problem.empty()) return RefuseBusy("unhealthy", problem, 5);
  std::optional<Admission::Lease> lease = state_->admission->TryEnter();
  if (!lease) return RefuseFull();
  http::request<http::empty_body> upgrade;
  upgrade.base() = request.base();
  deadline_.cancel();
  // A client may send its first frames without waiting for the answer.
  transport_.Unread(beast::buffers_to_string(buffer_.data()));
  std::make_shared<RealtimeConnection>(state_, std::move(transport_), *std::move(lease), std::move(start))
      ->Run(std::move(upgrade));
}

HttpConnection::Headers HttpConnection::CommonHeaders() const {
  Headers headers = {{"x-request-id", request_id_}};
  const std::string origin = parser_ && parser_->is_header_done() ? Field("Origin") : std::string();
  if (!origin.empty() && OriginAllowed(origin, {}, state_->options.allowed_origins)) {
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
    headers.emplace_back("Vary", "Origin");
  }
  return headers;
}

void HttpConnection::Answer(int status, std::string content_type, const std::string& body, Headers headers) {
  if (answered_ || closed_) return;
  answered_ = true;
  // A body that was not read cannot be skipped cheaply: the connection ends after this answer.
  if (parser_ && parser_->is_header_done() && !parser_->is_done()) keep_alive_ = false;
  ResponseHead head{.status = status,
                    .content_type = std::move(content_type),
                    .content_length = body.size(),
                    .keep_alive = keep_alive_,
                    .headers = CommonHeaders()};
  head.headers.insert(head.headers.end(), headers.begin(), headers.end());
  state_->metrics.OnRequest(status);
  const bool head_only = parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head;
  Send(FormatHead(head) + (head_only ? std::string() : body));
}

void HttpConnection::Refuse(const HttpError& error, Headers headers) {
  Log(LogLevel::kInfo, "http.refuse id={} remote={} status={} code={}", request_id_, remote_, error.status, error.code);
  Answer(error.status, "application/json", error.Body(), std::move(headers));
}

void HttpConnection::RefuseFull() {
  if (state_->admission->limited())
    return RefuseBusy("behind", "The server is busy: its sessions are behind their audio; try again soon", 2);
  RefuseBusy("full", "All " + std::to_string(state_->admission->places()) + " session places are taken", 1);
}

void HttpConnection::RefuseBusy(const char* reason, std::string message, int retry_after_s) {
  state_->metrics.OnRefused(reason);
  Headers headers = {{"Retry-After", std::to_string(retry_after_s)}};
  // This SDK repeats an upload with its length but without its body, and hangs.
  if (Field("User-Agent").starts_with("OpenAI/JS 4.")) headers.emplace_back("x-should-retry", "false");
  Refuse({503, std::move(message), {}, reason}, std::move(headers));
}

void HttpConnection::Send(std::string bytes) {
  if (closed_) return;
  if (!bytes.empty()) out_.push_back(std::move(bytes));
  if (writing_) return;
  if (out_.empty()) {
    if (answered_) AnswerDone();
    return;
  }
  writing_ = true;
  // Until its body is there, an upload has the deadline for itself.
  if (upload_ == nullptr || answered_ || UploadReceived()) Deadline(state_->options.slow_reader_s);
  asio::async_write(transport_, asio::buffer(out_.front()),
                    [self = shared_from_this()](ErrorCode error, size_t) { self->OnSent(error); });
}

void HttpConnection::OnSent(ErrorCode error) {
  writing_ = false;
  if (error) return Close();
  if (!answered_ && UploadReceived()) deadline_.cancel();
  out_.pop_front();
  Send({});
}

// The whole answer is out.
void HttpConnection::AnswerDone() {
  deadline_.cancel();
  if (upload_ != nullptr) EndUpload();
  if (!keep_alive_ || state_->draining) return DiscardBody();  // still registered: the client is to see the answer
  state_->Unregister(this);
  if (watching_) {
    next_wanted_ = true;
    return Deadline(state_->options.keep_alive_s);
  }
  ReadHeader(state_->options.keep_alive_s);
}

// Ends our side and reads what is still on its way, so that the client sees the answer instead of a reset.
void HttpConnection::DiscardBody() {
  if (!discarding_) {
    discarding_ = true;
    Deadline(kDiscardSeconds);
    if (transport_.secure()) {
      transport_.AsyncShutdown([self = shared_from_this()](ErrorCode) {});
    } else {
      ErrorCode ignored;
      transport_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    }
  }
  if (watching_ || reading_) return;  // which comes back here
  transport_.socket().async_read_some(asio::buffer(chunk_), [self = shared_from_this()](ErrorCode error, size_t bytes) {
    self->discarded_bytes_ += static_cast<int64_t>(bytes);
    if (error || self->discarded_bytes_ > kDiscardBytes) return self->Close();
    self->DiscardBody();
  });
}

}  // namespace voxrt::server
