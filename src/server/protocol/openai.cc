// OpenAI's realtime transcription, GA and beta names: deltas while audio comes in, `commit` (or voice activity) ends an
// utterance.
#include <map>

#include "server/protocol/handler.h"
#include "server/protocol/openai_session.h"

namespace voxrt::server {
namespace {

using Kind = ProtocolError::Kind;

constexpr const char* kTranscription = "conversation.item.input_audio_transcription";

class OpenAiHandler : public DialectHandler {
 public:
  OpenAiHandler(const SessionConfig& config, bool beta) : config_(config), beta_(beta) {
    settings_.model = config.default_model();
    settings_.stream.format = {Encoding::kPcmS16, 24000};
    settings_.stream.delay_ms = config.default_delay_ms;
  }

  const char* name() const override { return beta_ ? "openai-beta" : "openai"; }
  // With voice activity detection silence belongs to no utterance; the driver knows whether speech runs.
  bool idle() const override {
    return items_.empty() && (settings_.stream.vad.enabled || !intake_.HasSample(settings_.stream.format));
  }

  void OnBind(Outbox* out) override { Configure(out); }

  void OnEvent(const std::string& type, const Json& event, Outbox* out) override {
    client_event_id_ = StringMember(event, "event_id");
    if (type == "session.update" || type == "transcription_session.update") {
      OnUpdate(type, event, out);
    } else if (type == "input_audio_buffer.append") {
      const std::optional<std::string> bytes = DecodeAudioField(event);
      if (bytes) {
        OnAudio(*bytes, out);
      } else {
        OnError({Kind::kInvalidAudio, "Invalid 'audio': expected a string of base64 with padding", "audio"}, out);
      }
    } else if (type == "input_audio_buffer.commit") {
      OnCommit(out);
    } else if (type == "input_audio_buffer.clear") {
      OnClear(out);
    } else if (IsConversationEvent(type)) {
      OnError({Kind::kUnsupported, "'" + Excerpt(type) + "' is not supported in a transcription session", "type"}, out);
    } else {
      OnError({Kind::kUnknownType, "Invalid value: '" + Excerpt(type) + "'. Unknown event type.", "type"}, out);
    }
    client_event_id_.reset();
  }

  void OnAudio(std::string_view bytes, Outbox* out) override {
    const Status status = intake_.Push(bytes, settings_.stream.format, out);
    if (!status.ok()) OnError({Kind::kInvalidAudio, status.message(), "audio"}, out);
  }

  void OnStream(const StreamEvent& event, Outbox* out) override {
    switch (event.type) {
      case StreamEvent::Type::kText:
        OnText(event, out);
        break;
      case StreamEvent::Type::kDone:
        OnDone(event, out);
        break;
      case StreamEvent::Type::kBoundary:
        if (!items_[event.utterance].committed) SendCommitted(event.utterance, out);
        break;
      case StreamEvent::Type::kSpeechStarted:
        Send({{"type", "input_audio_buffer.speech_started"},
              {"audio_start_ms", event.audio_ms},
              {"item_id", ItemId(event.utterance)}},
             out);
        break;
      case StreamEvent::Type::kSpeechStopped:
        Send({{"type", "input_audio_buffer.speech_stopped"},
              {"audio_end_ms", event.audio_ms},
              {"item_id", ItemId(event.utterance)}},
             out);
        break;
      case StreamEvent::Type::kWarning:
        if (config_.openai_warnings)
          Send({{"type", "session.warning"}, {"code", event.text}, {"message", event.message}}, out);
        break;
    }
  }

  void OnError(const ProtocolError& error, Outbox* out) override {
    SendError("invalid_request_error", ErrorCode(error.kind), error.message, error.param, out);
  }

  void OnFault(Fault fault, const std::string& message, Outbox* out) override {
    if (fault == Fault::kEngine || fault == Fault::kGoingAway) {
      const char* code = fault == Fault::kEngine ? "server_error" : "going_away";
      const Json error = {{"type", "server_error"}, {"code", code}, {"message", message}, {"param", nullptr}};
      for (const auto& [utterance, item] : items_) {
        Send({{"type", std::string(kTranscription) + ".failed"},
              {"item_id", item.id},
              {"content_index", 0},
              {"error", error}},
             out);
      }
      SendError("server_error", code, message, {}, out);
    } else {
      const bool expired = fault == Fault::kIdle || fault == Fault::kExpired;
      SendError("invalid_request_error", expired ? "session_expired" : "rate_limit_exceeded", message, {}, out);
    }
    out->close = Close{FaultCloseCode(fault), message};
  }

  void EndAudio(Outbox* out) override {
    if (intake_.HasSample(settings_.stream.format)) OnCommit(out);
  }

 private:
  struct Item {
    std::string id;
    std::string text;
    bool committed = false;
  };

  static bool IsConversationEvent(const std::string& type) {
    return type.starts_with("conversation.item.") || type.starts_with("response.") ||
           type == "output_audio_buffer.clear";
  }

  static const char* ErrorCode(Kind kind) {
    switch (kind) {
      case Kind::kInvalidJson:
        return "invalid_json";
      case Kind::kInvalidAudio:
        return "invalid_audio";
      case Kind::kModelNotFound:
        return "model_not_found";
      case Kind::kUnknownType:
      case Kind::kInvalidValue:
        return "invalid_value";
      case Kind::kUnsupported:
        return "unsupported_event";
      case Kind::kCommitEmpty:
        return "input_audio_buffer_commit_empty";
      case Kind::kBufferFull:
        return "rate_limit_exceeded";
      default:
        return "invalid_event";
    }
  }

  std::string EventId() {
    return "event_" + config_.session_id.substr(config_.session_id.find('-') + 1) + "_" + std::to_string(++events_);
  }

  void Send(Json event, Outbox* out) {
    event["event_id"] = EventId();
    out->Send(Dump(event));
  }

  void SendError(const char* type, const char* code, const std::string& message, const std::string& param,
                 Outbox* out) {
    out->errors.emplace_back(name(), code);
    Send({{"type", "error"},
          {"error",
           {{"type", type},
            {"code", code},
            {"message", message},
            {"param", param.empty() ? Json(nullptr) : Json(param)},
            {"event_id", client_event_id_ ? Json(*client_event_id_) : Json(nullptr)}}}},
         out);
  }

  void Configure(Outbox* out) {
    out->commands.push_back({.type = Command::Type::kConfigure, .bytes = {}, .options = settings_.stream});
  }

  void OnUpdate(const std::string& type, const Json& event, Outbox* out) {
    const Json* session = Member(event, "session");
    if (session == nullptr || !session->is_object()) {
      return OnError({Kind::kInvalidEvent, "Missing required parameter: 'session'.", "session"}, out);
    }
    const bool flat = type == "transcription_session.update" || IsBetaSession(*session) ||
                      (beta_ && Member(*session, "audio") == nullptr);
    OpenAiSession updated = settings_;
    const std::optional<ProtocolError> error =
        flat ? ParseBetaSession(*session, config_, &updated) : ParseGaSession(*session, config_, &updated);
    if (error) return OnError(*error, out);
    if (intake_.ever_audio() && updated.stream.format != settings_.stream.format) {
      const char* path = flat ? "session.input_audio_format" : "session.audio.input.format";
      return OnError({Kind::kInvalidValue, "The audio format cannot change after the first audio", path}, out);
    }
    settings_ = std::move(updated);
    beta_ = flat;
    Configure(out);
    const char* answer = type == "session.update" ? "session.updated" : "transcription_session.updated";
    Send({{"type", answer},
          {"session", flat ? BetaSessionObject(settings_, config_) : GaSessionObject(settings_, config_)}},
         out);
  }

  void OnCommit(Outbox* out) {
    if (!intake_.HasSample(settings_.stream.format)) {
      return OnError({Kind::kCommitEmpty, "Error committing input audio buffer: the buffer is empty.", {}}, out);
    }
    // With voice activity detection the driver knows which utterance the rest belongs to, and reports the boundary.
    if (!settings_.stream.vad.enabled) SendCommitted(ended_++, out);
    intake_.EndUtterance(out);
  }

  void OnClear(Outbox* out) {
    intake_.Clear(out);
    for (auto it = items_.begin(); it != items_.end();) it = it->second.committed ? std::next(it) : items_.erase(it);
    Send({{"type", "input_audio_buffer.cleared"}}, out);
  }

  const std::string& ItemId(int64_t utterance) {
    Item& item = items_[utterance];
    if (item.id.empty()) {
      item.id =
          "item_" + config_.session_id.substr(config_.session_id.find('-') + 1) + "_" + std::to_string(++item_serial_);
    }
    return item.id;
  }

  void SendCommitted(int64_t utterance, Outbox* out) {
    const std::string id = ItemId(utterance);
    items_[utterance].committed = true;
    ended_ = std::max(ended_, utterance + 1);
    const Json previous = last_item_.empty() ? Json(nullptr) : Json(last_item_);
    Send({{"type", "input_audio_buffer.committed"}, {"previous_item_id", previous}, {"item_id", id}}, out);
    const Json content = {{"type", "input_audio"}, {"transcript", nullptr}};
    const Json item = {{"id", id},          {"object", "realtime.item"},
                       {"type", "message"}, {"status", "completed"},
                       {"role", "user"},    {"content", Json::array({content})}};
    if (beta_) {
      Send({{"type", "conversation.item.created"}, {"previous_item_id", previous}, {"item", item}}, out);
    } else {
      Send({{"type", "conversation.item.added"}, {"previous_item_id", previous}, {"item", item}}, out);
      Send({{"type", "conversation.item.done"}, {"previous_item_id", previous}, {"item", item}}, out);
    }
    last_item_ = id;
  }

  void OnText(const StreamEvent& event, Outbox* out) {
    if (event.text.empty()) return;
    const std::string id = ItemId(event.utterance);
    items_[event.utterance].text += event.text;
    const std::string head = std::string(R"({"type":")") + kTranscription + R"(.delta","event_id":")" + EventId() +
                             R"(","item_id":")" + id + R"(","content_index":0,"delta":")";
    out->frames.push_back({.text = head, .delta = event.text, .suffix = R"("})", .merge_key = id});
  }

  void OnDone(const StreamEvent& event, Outbox* out) {
    const std::string id = ItemId(event.utterance);
    Send({{"type", std::string(kTranscription) + ".completed"},
          {"item_id", id},
          {"content_index", 0},
          {"transcript", items_[event.utterance].text},
          {"usage", {{"type", "duration"}, {"seconds", static_cast<double>(event.samples) / 16000.0}}}},
         out);
    items_.erase(event.utterance);
  }

  SessionConfig config_;
  bool beta_;
  OpenAiSession settings_;
  AudioIntake intake_;
  std::map<int64_t, Item> items_;  // by utterance: not completed yet
  std::string last_item_;          // committed last
  int64_t ended_ = 0;              // utterances
  int64_t item_serial_ = 0;
  int64_t events_ = 0;
  std::optional<std::string> client_event_id_;
};

}  // namespace

std::unique_ptr<DialectHandler> MakeOpenAiHandler(const SessionConfig& config, bool beta) {
  return std::make_unique<OpenAiHandler>(config, beta);
}

}  // namespace voxrt::server
