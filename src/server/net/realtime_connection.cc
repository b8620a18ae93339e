#include "server/net/realtime_connection.h"

#include <fmt/format.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/websocket/rfc6455.hpp>

#include "base/log.h"
#include "server/http/http_error.h"
#include "server/net/websocket_frame.h"

namespace voxrt::server {

namespace beast = boost::beast;
namespace websocket = boost::beast::websocket;
using std::chrono::duration;
using std::chrono::seconds;

namespace {

double Since(Clock::time_point then, Clock::time_point now) { return duration<double>(now - then).count(); }
constexpr double kLagWarningSeconds = 1.0;
constexpr double kExpiryWarningSeconds = 30.0;
constexpr double kHoldSeconds = 1.0;
constexpr double kForceCloseSeconds = 12.0;
const char* const kTimeOver = "The server is going away and the time to finish is over";

}  // namespace

RealtimeConnection::RealtimeConnection(std::shared_ptr<ServerState> state, Transport transport, Admission::Lease lease,
                                       RealtimeStart start)
    : state_(std::move(state)),
      start_(std::move(start)),
      config_(state_->NewSessionConfig()),
      lease_(std::move(lease)),
      socket_(std::move(transport)),
      timer_(socket_.get_executor()),
      protocol_(config_, start_.hints),
      opened_(Clock::now()),
      last_message_(opened_),
      last_input_(opened_) {
  ++state_->connections;
}

RealtimeConnection::~RealtimeConnection() {
  state_->Unregister(this);
  --state_->connections;
  if (outbound_counted_ != 0) state_->metrics.OnOutboundBytes(-outbound_counted_);
}

void RealtimeConnection::Run(beast::http::request<beast::http::empty_body> request) {
  websocket::stream_base::timeout timeout{};
  timeout.handshake_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(state_->options.handshake_timeout_s * 1000));
  timeout.idle_timeout = std::chrono::milliseconds(static_cast<int64_t>(state_->options.peer_timeout_s * 1000));
  timeout.keep_alive_pings = true;  // at half the time
  socket_.set_option(timeout);
  socket_.set_option(websocket::stream_base::decorator([this](websocket::response_type& response) {
    response.set(beast::http::field::server, "voxrt");
    if (!start_.subprotocol.empty()) response.set(beast::http::field::sec_websocket_protocol, start_.subprotocol);
    for (const auto& [name, value] : start_.headers) response.set(name, value);
  }));
  socket_.read_message_max(static_cast<size_t>(state_->options.max_message_bytes));
  socket_.auto_fragment(false);
  socket_.text(true);
  auto self = shared_from_this();
  state_->Register(this);
  draining_ = state_->draining;  // it may have begun since the request was looked at
  state_->metrics.OnWebSocketOpened();
  auto kept = std::make_shared<beast::http::request<beast::http::empty_body>>(std::move(request));
  socket_.async_accept(*kept, [self, kept](ErrorCode error) { self->OnAccepted(error); });
}

void RealtimeConnection::OnAccepted(ErrorCode error) {
  if (error) return Finish(1006);
  std::weak_ptr<RealtimeConnection> weak = shared_from_this();
  DriverOptions driver;
  driver.limits = {.memory_bytes = state_->options.session_memory_bytes,
                   .total_bytes = state_->options.max_session_backlog_bytes,
                   .directory = state_->options.temp_dir};
  auto wake = [weak,
               executor =
                   socket_.get_executor()] {  // on the scheduler thread: only posts, and only once until it is handled
    if (const auto self = weak.lock(); self != nullptr && !self->pump_posted_.exchange(true)) {
      asio::post(executor, [weak] {
        if (const auto connection = weak.lock()) connection->Pump();
      });
    }
  };
  driver_ =
      std::make_unique<StreamDriver>(state_->engine, std::move(driver), state_->backlog_budget, std::move(wake), this);
  Log(LogLevel::kInfo, "session.open id={} remote={} mistral={} tls={}", config_.session_id, start_.remote,
      start_.hints.mistral_path, socket_.next_layer().secure());
  Outbox outbox;
  protocol_.Open(&outbox);
  Apply(&outbox);
  ScheduleTick();
  Read();
  if (draining_) CheckDrain();
}

void RealtimeConnection::Read() {
  if (read_pending_ || half_closed_ || phase_ == Phase::kClosed || finished_) return;
  // While closing, reading goes on: the client's close frame is to be answered.
  if (phase_ == Phase::kOpen && !close_wanted_ && MustPause()) {
    if (!paused_since_) paused_since_ = Clock::now();
    if (driver_ != nullptr && driver_->full()) hold_deltas_ = true;
    return;
  }
  paused_since_.reset();
  read_pending_ = true;
  socket_.async_read(buffer_, [self = shared_from_this()](ErrorCode error, size_t) { self->OnRead(error); });
}

bool RealtimeConnection::MustPause() {
  return (driver_ != nullptr && driver_->full()) || queue_.bytes() > state_->options.max_outbound_bytes;
}

void RealtimeConnection::OnRead(ErrorCode error) {
  read_pending_ = false;
  if (error) return OnReadFailed(error);
  if (phase_ != Phase::kOpen || close_wanted_ || ended_) {  // what comes after our decision to close does not count
    buffer_.consume(buffer_.size());
    return Read();
  }
  last_message_ = Clock::now();
  Outbox outbox;
  const std::string_view message(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (socket_.got_text()) {
    protocol_.OnText(message, &outbox);
  } else {
    protocol_.OnBinary(message, &outbox);
  }
  buffer_.consume(buffer_.size());
  if (buffer_.capacity() > (1U << 20)) buffer_ = beast::flat_buffer();  // one large message does not pin its memory
  Apply(&outbox);
  Pump();
  Read();
}

void RealtimeConnection::OnReadFailed(ErrorCode error) {
  if (close_sent()) return Finish(close_code_);  // whichever way the client takes it
  if (error == websocket::error::closed) {
    const int code = socket_.reason().code;
    return Finish(code == 0 ? 1005 : code);
  }
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) return HalfClosed();
  if (error == websocket::error::message_too_big || error == websocket::error::buffer_overflow) return Finish(1009);
  if (error == websocket::error::bad_frame_payload) return Finish(1007);
  Finish(error.category() == make_error_code(websocket::error::closed).category() ? 1002 : 1006);
}

// The client ended its side without a close frame. When everything was said (the end was commanded) the finals are
// still delivered: those that the engine owes, and those that already wait for the socket.
void RealtimeConnection::HalfClosed() {
  const bool owes = driver_ != nullptr && driver_->owes();
  const bool nothing_left = !owes && queue_.empty() && !write_pending_ && !unsent_;
  if (phase_ != Phase::kOpen || nothing_left) return Finish(1006);
  half_closed_ = true;
  if (write_pending_) return;
  if (unsent_) return Resend();
  Write();
}

void RealtimeConnection::Apply(Outbox* outbox) {
  const Clock::time_point now = Clock::now();
  for (Command& command : outbox->commands) {
    if (command.type == Command::Type::kAudio) last_input_ = now;
    if (command.type == Command::Type::kEndUtterance) hold_deltas_ = false;
    const Status status = driver_->Execute(std::move(command), now);
    if (!status.ok()) {
      Log(LogLevel::kError, "session.backlog id={} error=\"{}\"", config_.session_id, status.message());
      return Fail(status.code() == StatusCode::kIo ? Fault::kBufferFull : Fault::kEngine,
                  "The audio cannot be buffered on this server");
    }
  }
  if (!admitted_counted_ && protocol_.bound()) {
    admitted_counted_ = true;
    state_->metrics.OnSessionAdmitted(protocol_.dialect());
  }
  for (const auto& [dialect, code] : outbox->errors) {
    state_->metrics.OnError(dialect, code);
    Log(LogLevel::kInfo, "session.error id={} dialect={} code={}", config_.session_id, dialect, code);
  }
  for (Frame& frame : outbox->frames) {
    if (state_->options.log_text) Log(LogLevel::kInfo, "session.frame id={} {}", config_.session_id, Serialize(frame));
    queue_.Push(std::move(frame));
  }
  if (outbox->close) BeginClose(outbox->close->code, outbox->close->reason);
  Write();
}

// Moves the driver on and turns what it reports into frames.
void RealtimeConnection::Pump() {
  pump_posted_ = false;
  if (phase_ != Phase::kOpen || driver_ == nullptr || close_wanted_) return;
  events_.clear();
  const Status status = driver_->Pump(Clock::now(), &events_);
  Outbox outbox;
  for (const StreamEvent& event : events_) {
    if (event.type == StreamEvent::Type::kWarning)
      Log(LogLevel::kWarning, "session.warning id={} code={}", config_.session_id, event.text);
    protocol_.OnStream(event, &outbox);
  }
  Apply(&outbox);
  if (!status.ok()) {
    Log(LogLevel::kError, "session.engine id={} error=\"{}\"", config_.session_id, status.message());
    return Fail(Fault::kEngine, "The engine failed: " + WithoutFlags(status.message()));
  }
  if (paused_since_) Read();
  if (draining_) CheckDrain();
}

void RealtimeConnection::Fail(Fault fault, const std::string& message) {
  if (close_wanted_) return;
  Outbox outbox;
  protocol_.OnFault(fault, message, &outbox);
  DropDriver();  // the slot of the device comes back at once
  Apply(&outbox);
}

void RealtimeConnection::BeginClose(uint16_t code, const std::string& reason) {
  if (close_wanted_) return;
  close_wanted_ = true;
  close_code_ = code;
  close_reason_ = Excerpt(reason, 120);  // a control frame holds 125 bytes
  closing_since_ = Clock::now();
  hold_deltas_ = false;
}

void RealtimeConnection::Write() {
  const int64_t waiting = queue_.bytes();
  state_->metrics.OnOutboundBytes(waiting - outbound_counted_);
  outbound_counted_ = waiting;
  if (write_pending_ || phase_ != Phase::kOpen) return;
  std::optional<std::string> message = queue_.Pop(hold_deltas_);
  if (!message) {
    if (close_wanted_ && queue_.empty()) StartClosing();
    if (half_closed_ && (driver_ == nullptr || !driver_->owes())) {
      close_wanted_ = true;
      StartClosing();
    }
    return;
  }
  write_pending_ = true;
  writing_ = *std::move(message);
  if (half_closed_) return WriteRaw(writing_);
  writes_before_ = socket_.next_layer().writes_started();
  socket_.async_write(asio::buffer(writing_),
                      [self = shared_from_this()](ErrorCode error, size_t) { self->OnWritten(error); });
}

// Beast takes an ended receiving side for the end of everything; a text frame from a server is simple enough.
void RealtimeConnection::WriteRaw(const std::string& message) {
  writing_ = TextFrame(message);
  asio::async_write(socket_.next_layer(), asio::buffer(writing_),
                    [self = shared_from_this()](ErrorCode error, size_t) { self->OnWritten(error); });
}

// The message that Beast refused, on the half-closed socket.
void RealtimeConnection::Resend() {
  unsent_ = false;
  write_pending_ = true;
  WriteRaw(writing_);
}

void RealtimeConnection::OnWritten(ErrorCode error) {
  write_pending_ = false;
  // Beast's reader may have seen the end of input before our handler runs: a write begun in between is refused whole.
  unsent_ = error && socket_.next_layer().writes_started() == writes_before_;
  // Beast reports a finished write as aborted once reading has ended.
  if (error && !(half_closed_ && error == asio::error::operation_aborted)) {
    if (half_closed_) return Finish(1006);
    if (!read_pending_) Finish(1006);
    return;  // the pending read ends with the reason
  }
  if (unsent_) return Resend();
  Write();
  if (paused_since_ && driver_ != nullptr) Read();
}

void RealtimeConnection::StartClosing() {
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kClosing;
  if (!closing_since_) closing_since_ = Clock::now();
  writes_before_close_ = socket_.next_layer().writes_started();
  DropDriver();
  lease_.reset();  // the place is free before the client has taken notice
  if (half_closed_) {
    writing_ = CloseFrame(close_code_, close_reason_);
    asio::async_write(socket_.next_layer(), asio::buffer(writing_),
                      [self = shared_from_this()](ErrorCode, size_t) { self->Finish(self->close_code_); });
    return;
  }
  websocket::close_reason reason(static_cast<websocket::close_code>(close_code_));
  reason.reason = close_reason_;
  socket_.async_close(reason, [self = shared_from_this()](ErrorCode) { self->Finish(self->close_code_); });
}

bool RealtimeConnection::close_sent() const {
  return phase_ == Phase::kClosing && socket_.next_layer().writes_started() > writes_before_close_;
}

void RealtimeConnection::DropDriver() {
  if (driver_ != nullptr) audio_s_ = driver_->audio_seconds();
  driver_.reset();
}

// Once per connection, however it ends: gives everything back.
void RealtimeConnection::Finish(int code) {
  if (finished_) return;
  finished_ = true;
  phase_ = Phase::kClosed;
  timer_.cancel();
  const double length_s = Since(opened_, Clock::now());
  DropDriver();
  lease_.reset();
  state_->Unregister(this);
  state_->metrics.OnWebSocketClosed(length_s, code);
  Log(LogLevel::kInfo, "session.close id={} dialect={} code={} seconds={:.3f} audio_s={:.2f}", config_.session_id,
      protocol_.dialect(), code, length_s, audio_s_);
  // TLS says goodbye where Beast has not; the socket closes with the last reference.
  Transport& transport = socket_.next_layer();
  if (code == 1006) {
    transport.Close();
  } else {
    ErrorCode ignored;
    transport.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }
}

void RealtimeConnection::ScheduleTick() {
  timer_.expires_after(seconds(1));
  // Keeps the connection alive while nothing is read or written; Finish cancels it.
  timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error) self->Tick();
  });
}

void RealtimeConnection::Tick() {
  if (finished_) return;
  const Clock::time_point now = Clock::now();
  if (closing_since_ && Since(*closing_since_, now) > kForceCloseSeconds) {  // the client neither reads nor answers
    const int code = close_sent() ? close_code_ : 1006;
    socket_.next_layer().Close();
    return Finish(code);
  }
  if (phase_ == Phase::kOpen && !close_wanted_) {
    CheckInput(now);
    CheckOutput(now);
    CheckLag(now);
    if (draining_) CheckDrain();
  }
  if (!finished_) ScheduleTick();
}

void RealtimeConnection::CheckInput(Clock::time_point now) {
  if (close_wanted_ || driver_ == nullptr) return;
  const ServerOptions& options = state_->options;
  if (hold_deltas_ && !paused_since_ && Since(last_input_, now) >= kHoldSeconds) {
    hold_deltas_ = false;
    Write();
  }
  if (paused_since_) {
    Read();  // room may have come from other sessions
    if (paused_since_ && driver_ != nullptr && driver_->full() && Since(*paused_since_, now) > options.push_back_s) {
      return Fail(Fault::kBufferFull, "Too much audio is waiting; send no faster than it is transcribed");
    }
  }
  if (options.idle_timeout_s > 0.0 && Since(last_message_, now) > options.idle_timeout_s && !driver_->owes()) {
    return Fail(Fault::kIdle, fmt::format("No message for {:.0f} s", options.idle_timeout_s));
  }
  if (options.max_session_s <= 0.0) return;
  const double left = options.max_session_s - Since(opened_, now);
  if (left <= 0.0)
    return Fail(Fault::kExpired, fmt::format("The session is longer than {:.0f} s", options.max_session_s));
  if (left <= kExpiryWarningSeconds && !expiry_warned_) {
    expiry_warned_ = true;
    Warn("expiring", fmt::format("The session ends in {:.0f} s", left));
  }
}

void RealtimeConnection::CheckOutput(Clock::time_point now) {
  if (queue_.bytes() <= state_->options.max_outbound_bytes) {
    queue_full_since_.reset();
    return;
  }
  if (!queue_full_since_) queue_full_since_ = now;
  if (Since(*queue_full_since_, now) > state_->options.slow_reader_s) Fail(Fault::kSlowReader, "The text is not read");
}

void RealtimeConnection::CheckLag(Clock::time_point now) {
  if (close_wanted_ || driver_ == nullptr) return;
  const double lag = driver_->LagSeconds(now);
  state_->ReportLag(lag, driver_->paced(now));
  if (lag > 0.0) state_->ReportStalled(std::min(lag, Since(std::max(driver_->last_progress(), opened_), now)));
  if (!driver_->paced(now)) {
    lagging_since_.reset();
    return;
  }
  if (lag > kLagWarningSeconds && !lag_warned_) {
    lag_warned_ = true;
    Warn("lagging", fmt::format("The text is {:.1f} s behind the audio", lag));
  }
  const double limit = state_->options.max_lag_s;
  if (limit <= 0.0 || lag <= limit) {
    lagging_since_.reset();
    if (lag < kLagWarningSeconds / 2) lag_warned_ = false;
    return;
  }
  if (!lagging_since_) lagging_since_ = now;
  if (Since(*lagging_since_, now) > limit)
    Fail(Fault::kLag, fmt::format("The server is overloaded: the text is {:.0f} s behind the audio", lag));
}

void RealtimeConnection::Warn(const char* code, std::string message) {
  Log(LogLevel::kWarning, "session.warning id={} code={}", config_.session_id, code);
  StreamEvent event;
  event.type = StreamEvent::Type::kWarning;
  event.text = code;
  event.message = std::move(message);
  Outbox outbox;
  protocol_.OnStream(event, &outbox);
  Apply(&outbox);
}

void RealtimeConnection::OnToken(bool has_text) {
  state_->metrics.OnToken(has_text);
  const Clock::time_point now = Clock::now();
  if (last_token_) state_->metrics.OnTokenInterval(Since(*last_token_, now));
  last_token_ = now;
}

void RealtimeConnection::Drain() {
  auto shared = weak_from_this().lock();
  if (shared == nullptr) return;
  asio::post(socket_.get_executor(), [self = std::move(shared)] {
    self->draining_ = true;
    if (self->driver_ != nullptr) self->CheckDrain();
  });
}

// Running utterances may end; a connection on which nothing runs is closed.
void RealtimeConnection::CheckDrain() {
  if (close_wanted_ || phase_ != Phase::kOpen || !protocol_.idle()) return;
  if (driver_ != nullptr && (driver_->owes() || driver_->hearing())) return;
  BeginClose(1001, ended_ ? kTimeOver : "The server is going away");
  Write();
}

void RealtimeConnection::CountCut() {
  if (!std::exchange(cut_counted_, true)) ++state_->cut;
}

// What was received gets its final text: Pump closes when nothing is owed any more.
void RealtimeConnection::EndNow() {
  auto shared = weak_from_this().lock();
  if (shared == nullptr) return;
  asio::post(socket_.get_executor(), [self = std::move(shared)] {
    if (self->finished_ || self->close_wanted_ || self->driver_ == nullptr) return;
    self->ended_ = self->draining_ = true;
    Outbox outbox;
    self->protocol_.EndAudio(kTimeOver, &outbox);
    if (!outbox.commands.empty() || outbox.close) self->CountCut();
    self->Apply(&outbox);
    self->Pump();
  });
}

void RealtimeConnection::Abort() {
  auto shared = weak_from_this().lock();
  if (shared == nullptr) return;
  asio::post(socket_.get_executor(), [self = std::move(shared)] {
    if (self->finished_ || self->phase_ != Phase::kOpen) return;
    if (!self->socket_.is_open()) return self->socket_.next_layer().Close();  // the upgrade never ended
    self->CountCut();
    self->Fail(Fault::kGoingAway, kTimeOver);
  });
}

}  // namespace voxrt::server
