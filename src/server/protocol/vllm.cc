// vLLM's realtime dialect: `commit` starts a generation, `commit` with final ends it, each on a fresh context. PCM16,
// 16 kHz.
#include "server/protocol/handler.h"

namespace voxrt::server {
namespace {

using Kind = ProtocolError::Kind;

class VllmHandler : public DialectHandler {
 public:
  explicit VllmHandler(const SessionConfig& config) : config_(config) {
    options_.delay_ms = config.default_delay_ms;
    options_.waits_for_start = true;
  }

  const char* name() const override { return "vllm"; }
  bool idle() const override { return started_ == done_; }

  void OnBind(Outbox* out) override { Configure(out); }

  void OnEvent(const std::string& type, const Json& event, Outbox* out) override {
    if (type == "session.update") return OnUpdate(event, out);
    if (type == "input_audio_buffer.append") return OnAppend(event, out);
    if (type == "input_audio_buffer.commit") return OnCommit(event, out);
    OnError({Kind::kUnknownType, "Unknown event type: " + Excerpt(type), {}}, out);
  }

  void OnAudio(std::string_view bytes, Outbox* out) override {
    const Status status = intake_.Push(bytes, options_.format, out);
    if (!status.ok()) OnError({Kind::kInvalidAudio, status.message(), {}}, out);
  }

  void OnStream(const StreamEvent& event, Outbox* out) override {
    switch (event.type) {
      case StreamEvent::Type::kText:
        OnText(event, out);
        break;
      case StreamEvent::Type::kDone:
        OnDone(event, out);
        break;
      case StreamEvent::Type::kWarning:
        if (config_.other_warnings) {
          out->Send(Dump({{"type", "session.warning"}, {"code", event.text}, {"message", event.message}}));
        }
        break;
      default:
        break;
    }
  }

  void OnError(const ProtocolError& error, Outbox* out) override {
    SendError(error.message, ErrorCode(error.kind), out);
  }

  void OnFault(Fault fault, const std::string& message, Outbox* out) override {
    const char* code = "buffer_full";
    if (fault == Fault::kEngine) code = "processing_error";
    if (fault == Fault::kIdle) code = "idle_timeout";
    if (fault == Fault::kExpired) code = "session_expired";
    if (fault == Fault::kGoingAway) code = "going_away";
    SendError(message, code, out);
    out->close = Close{FaultCloseCode(fault), message};
  }

  void EndAudio(Outbox* out) override {
    if (started_ != ended_) End(out);
  }

 private:
  static const char* ErrorCode(Kind kind) {
    switch (kind) {
      case Kind::kInvalidJson:
        return "invalid_json";
      case Kind::kUnknownType:
      case Kind::kUnsupported:
        return "unknown_event";
      case Kind::kInvalidAudio:
        return "invalid_audio";
      case Kind::kModelNotFound:
        return "model_not_found";
      case Kind::kModelNotValidated:
        return "model_not_validated";
      case Kind::kBufferFull:
        return "buffer_full";
      default:
        return "invalid_event";
    }
  }

  void SendError(const std::string& message, const char* code, Outbox* out) {
    out->errors.emplace_back(name(), code);
    out->Send(Dump({{"type", "error"}, {"error", message}, {"code", code}}));
  }

  void Configure(Outbox* out) {
    out->commands.push_back({.type = Command::Type::kConfigure, .bytes = {}, .options = options_});
  }

  void OnUpdate(const Json& event, Outbox* out) {
    const std::optional<std::string> model = StringMember(event, "model");
    if (!model) return OnError({Kind::kInvalidEvent, "Missing required field: model", {}}, out);
    if (!config_.Serves(*model)) {
      return OnError({Kind::kModelNotFound, "The model `" + Excerpt(*model) + "` does not exist.", {}}, out);
    }
    const Json* delay = Member(event, "target_streaming_delay_ms");
    if (delay != nullptr && !delay->is_null()) {
      if (!delay->is_number_integer() || !ValidDelayMs(delay->get<int64_t>())) {
        return OnError({Kind::kInvalidValue, "target_streaming_delay_ms must be " + std::string(kDelayRule), {}}, out);
      }
      options_.delay_ms = delay->get<int>();
      Configure(out);
    }
    const Json* times = Member(event, "token_times");
    if (times != nullptr && times->is_boolean()) token_times_ = times->get<bool>();
    validated_ = true;
  }

  void OnAppend(const Json& event, Outbox* out) {
    const std::optional<std::string> bytes = DecodeAudioField(event);
    if (!bytes) return OnError({Kind::kInvalidAudio, "Invalid audio data", {}}, out);
    OnAudio(*bytes, out);
  }

  void OnCommit(const Json& event, Outbox* out) {
    if (!validated_) {
      return OnError({Kind::kModelNotValidated, "Model not validated. Send a session.update with the model first.", {}},
                     out);
    }
    const Json* final = Member(event, "final");
    const bool ends = final != nullptr && final->is_boolean() && final->get<bool>();
    if (started_ == ended_) {  // nothing is running: both forms start a generation
      ++started_;
      out->Do(Command::Type::kStart);
    }
    if (ends) End(out);
  }

  void End(Outbox* out) {
    ++ended_;
    intake_.EndUtterance(out);
  }

  void OnText(const StreamEvent& event, Outbox* out) {
    text_ += event.text;
    if (token_times_) {
      if (event.text.empty() && !event.word_mark) return;
      out->Send(Dump({{"type", "transcription.delta"},
                      {"delta", event.text},
                      {"end_ms", event.audio_ms - begin_ms_},
                      {"word_mark", event.word_mark}}));
    } else if (config_.vllm_empty_deltas) {  // one message per step was asked for: never merged
      out->Send(Dump({{"type", "transcription.delta"}, {"delta", event.text}}));
    } else if (!event.text.empty()) {
      out->frames.push_back({.text = R"({"type":"transcription.delta","delta":")",
                             .delta = event.text,
                             .suffix = R"("})",
                             .merge_key = "u" + std::to_string(event.utterance)});
    }
  }

  void OnDone(const StreamEvent& event, Outbox* out) {
    ++done_;
    begin_ms_ = event.audio_ms;
    out->Send(Dump({{"type", "transcription.done"},
                    {"text", text_},
                    {"usage",
                     {{"prompt_tokens", event.prompt_tokens},
                      {"total_tokens", event.prompt_tokens + event.completion_tokens},
                      {"completion_tokens", event.completion_tokens},
                      {"prompt_tokens_details", nullptr}}}}));
    text_.clear();
  }

  SessionConfig config_;
  StreamOptions options_;
  AudioIntake intake_;
  bool validated_ = false;
  bool token_times_ = false;                    // our extension: every delta says when its token ends
  int64_t begin_ms_ = 0;                        // of the running generation in the session's audio
  int64_t started_ = 0, ended_ = 0, done_ = 0;  // generations
  std::string text_;                            // of the running generation
};

}  // namespace

std::unique_ptr<DialectHandler> MakeVllmHandler(const SessionConfig& config) {
  return std::make_unique<VllmHandler>(config);
}

}  // namespace voxrt::server
