// RealtimeProtocol: what a realtime connection says and hears. Greets every client with one `session.created` that all
// SDKs accept, tells the dialect from path, URL, headers and first events, then hands over to that dialect.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/protocol/events.h"
#include "server/protocol/handler.h"

namespace voxrt::server {

// What the upgrade request tells.
struct RealtimeHints {
  bool mistral_path = false;
  bool intent = false;       // ?intent=
  bool beta_header = false;  // OpenAI-Beta, or the subprotocol openai-beta.realtime-v1
  bool realtime_subprotocol = false;
  std::string model;  // ?model=, decoded
};

class RealtimeProtocol {
 public:
  RealtimeProtocol(SessionConfig config, RealtimeHints hints);

  // The first frame, before anything is read.
  void Open(Outbox* out);
  void OnText(std::string_view message, Outbox* out);
  void OnBinary(std::string_view message, Outbox* out);
  void OnStream(const StreamEvent& event, Outbox* out) { handler_->OnStream(event, out); }
  void OnFault(Fault fault, const std::string& message, Outbox* out) { handler_->OnFault(fault, message, out); }
  // As if the client had ended its audio: what it began gets its final text, then idle() becomes true. Audio of which
  // nobody said what it is gets `message` as a fault.
  void EndAudio(const std::string& message, Outbox* out);

  bool idle() const { return handler_->idle() && unbound_audio_.empty(); }
  const char* dialect() const { return handler_->name(); }
  bool bound() const { return bound_; }

 private:
  void Bind(std::unique_ptr<DialectHandler> handler, Outbox* out);
  bool TryBind(const std::string& type, const Json& event, Outbox* out);
  void HoldAudio(const Json& event, Outbox* out);
  void ReleaseAudio(Outbox* out);

  SessionConfig config_;
  RealtimeHints hints_;
  bool openai_leaning_;
  std::unique_ptr<DialectHandler> handler_;  // before binding: words errors in the leaning's shape
  bool bound_ = false;
  std::string unbound_audio_;  // decoded base64, format not known yet
};

// The one greeting that vLLM's, OpenAI's and Mistral's clients all accept.
std::string SessionCreated(const SessionConfig& config, const std::string& model);

}  // namespace voxrt::server
