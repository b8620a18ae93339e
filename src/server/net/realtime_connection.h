// RealtimeConnection: one WebSocket: reads messages into the protocol, runs its commands, writes its frames, and keeps
// every limit of docs/server.md. All work happens on the connection's strand.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <memory>
#include <string>
#include <vector>

#include "server/net/outbound_queue.h"
#include "server/net/transport.h"
#include "server/protocol/realtime.h"
#include "server/state.h"
#include "server/stream/stream_driver.h"

namespace voxrt::server {

struct RealtimeStart {
  RealtimeHints hints;
  std::string subprotocol;                                   // to echo; empty = none
  std::string remote;                                        // for the log
  std::vector<std::pair<std::string, std::string>> headers;  // for the 101 answer
};

class RealtimeConnection : public std::enable_shared_from_this<RealtimeConnection>,
                           public Drainable,
                           public StreamObserver {
 public:
  RealtimeConnection(std::shared_ptr<ServerState> state, Transport transport, Admission::Lease lease,
                     RealtimeStart start);
  ~RealtimeConnection() override;

  // Accepts the upgrade and begins.
  void Run(boost::beast::http::request<boost::beast::http::empty_body> request);

  void Drain() override;
  void EndNow() override;
  void Abort() override;

 private:
  using WebSocket = boost::beast::websocket::stream<Transport>;
  enum class Phase : uint8_t { kOpen, kClosing, kClosed };

  void OnAccepted(ErrorCode error);
  void Read();
  void OnRead(ErrorCode error);
  void OnReadFailed(ErrorCode error);
  void HalfClosed();
  void Pump();
  void Apply(Outbox* outbox);
  void Write();
  void OnWritten(ErrorCode error);
  void WriteRaw(const std::string& message);
  void Resend();
  void BeginClose(uint16_t code, const std::string& reason);
  void StartClosing();
  void Fail(Fault fault, const std::string& message);
  void ScheduleTick();
  void Tick();
  void CheckInput(Clock::time_point now);
  void CheckOutput(Clock::time_point now);
  void CheckLag(Clock::time_point now);
  void CheckDrain();
  void CountCut();
  void DropDriver();
  bool close_sent() const;
  void Warn(const char* code, std::string message);
  void Finish(int code);
  bool MustPause();

  // StreamObserver
  void OnAudioReceived(double seconds) override { state_->metrics.OnAudioReceived(seconds); }
  void OnAudioTranscribed(double seconds) override { state_->metrics.OnAudioTranscribed(seconds); }
  void OnToken(bool has_text) override;
  void OnLag(double seconds) override { state_->metrics.OnLag(seconds); }
  void OnFirstText(double seconds) override { state_->metrics.OnFirstText(seconds); }
  void OnPrompt(int64_t tokens) override { state_->metrics.OnPrompt(tokens); }

  const std::shared_ptr<ServerState> state_;
  const RealtimeStart start_;
  const SessionConfig config_;
  std::optional<Admission::Lease> lease_;
  WebSocket socket_;
  asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  RealtimeProtocol protocol_;
  std::unique_ptr<StreamDriver> driver_;
  std::vector<StreamEvent> events_;

  OutboundQueue queue_;
  std::string writing_;  // the message on its way
  bool write_pending_ = false;
  int64_t writes_before_ = 0;  // Transport::writes_started() when `writing_` was handed to Beast
  bool unsent_ = false;        // Beast refused `writing_` before its first byte: the client has ended its side
  bool read_pending_ = false;
  bool half_closed_ = false;   // the client ended its side; frames are written without Beast
  bool close_wanted_ = false;  // after the queue
  uint16_t close_code_ = 1000;
  std::string close_reason_;
  Phase phase_ = Phase::kOpen;
  int64_t writes_before_close_ = 0;
  double audio_s_ = 0.0;  // received, when the driver was dropped
  bool finished_ = false;
  bool draining_ = false;
  bool ended_ = false;  // by EndNow: what the client still sends does not count
  bool cut_counted_ = false;
  bool admitted_counted_ = false;
  std::atomic<bool> pump_posted_{false};

  Clock::time_point opened_;
  Clock::time_point last_message_;
  Clock::time_point last_input_;  // audio accepted
  std::optional<Clock::time_point> paused_since_;
  bool hold_deltas_ = false;
  std::optional<Clock::time_point> queue_full_since_;
  std::optional<Clock::time_point> lagging_since_;
  std::optional<Clock::time_point> closing_since_;
  std::optional<Clock::time_point> last_token_;
  bool lag_warned_ = false;
  bool expiry_warned_ = false;
  int64_t outbound_counted_ = 0;
};

}  // namespace voxrt::server
