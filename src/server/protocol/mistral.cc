// Mistral's realtime dialect: `flush` ends a stretch of text, `end` the session; schemas are strict, error codes are
// integers.
#include "server/protocol/handler.h"
#include "text/transcript.h"

namespace voxrt::server {
namespace {

using Kind = ProtocolError::Kind;

bool SupportedRate(int64_t rate) {
  return rate == 8000 || rate == 16000 || rate == 22050 || rate == 24000 || rate == 44100 || rate == 48000;
}

class MistralHandler : public DialectHandler {
 public:
  MistralHandler(const SessionConfig& config, std::string model) : config_(config), model_(std::move(model)) {
    options_.delay_ms = config.default_delay_ms;
  }

  const char* name() const override { return "mistral"; }
  bool idle() const override { return !intake_.HasSample(options_.format) && ended_ == done_; }

  void OnBind(Outbox* out) override { Configure(out); }

  void OnEvent(const std::string& type, const Json& event, Outbox* out) override {
    if (ending_) return;  // nothing counts after input_audio.end
    if (type == "session.update") return OnUpdate(event, out);
    if (type == "input_audio.append") return OnAppend(event, out);
    if (type == "input_audio.flush") return OnFlush(out);
    if (type == "input_audio.end") return OnEnd(out);
    OnError({Kind::kUnknownType, "Unknown event type: " + Excerpt(type), "type"}, out);
  }

  void OnAudio(std::string_view bytes, Outbox* out) override {
    const Status status = intake_.Push(bytes, options_.format, out);
    if (!status.ok()) OnError({Kind::kInvalidAudio, status.message(), "audio"}, out);
  }

  void OnStream(const StreamEvent& event, Outbox* out) override {
    if (event.type == StreamEvent::Type::kText) {
      OnText(event, out);
    } else if (event.type == StreamEvent::Type::kDone) {
      OnDone(event, out);
    } else if (event.type == StreamEvent::Type::kWarning && config_.other_warnings) {
      out->Send(Dump({{"type", "session.warning"}, {"code", event.text}, {"message", event.message}}));
    }
  }

  void OnError(const ProtocolError& error, Outbox* out) override {
    const bool not_found = error.kind == Kind::kModelNotFound;
    SendError(error.message,
              not_found                         ? 404
              : error.kind == Kind::kBufferFull ? 429
                                                : 400,
              "invalid_request_error", error.param, out);
    if (not_found) out->close = Close{1008, error.message};
  }

  void OnFault(Fault fault, const std::string& message, Outbox* out) override {
    int code = 429;
    if (fault == Fault::kEngine) code = 500;
    if (fault == Fault::kGoingAway) code = 503;
    if (fault == Fault::kIdle || fault == Fault::kExpired) code = 408;
    SendError(message, code, code >= 500 ? "server_error" : "rate_limit_error", {}, out);
    out->close = Close{FaultCloseCode(fault), message};
  }

  void EndAudio(Outbox* out) override {
    if (intake_.HasSample(options_.format)) OnFlush(out);
  }

 private:
  void SendError(const std::string& message, int code, const char* type, const std::string& param, Outbox* out) {
    out->errors.emplace_back(name(), std::to_string(code));
    Json error = {{"message", message}, {"code", code}, {"type", type}};
    if (!param.empty()) error["param"] = param;
    out->Send(Dump({{"type", "error"}, {"error", error}}));
  }

  void Configure(Outbox* out) {
    out->commands.push_back({.type = Command::Type::kConfigure, .bytes = {}, .options = options_});
  }

  // Applies the update to `options`; the error names the field, what was found and what is allowed.
  std::optional<ProtocolError> ParseUpdate(const Json& session, StreamOptions* options) const {
    const Json* format = Member(session, "audio_format");
    if (format != nullptr && !format->is_null()) {
      const std::optional<std::string> name = StringMember(*format, "encoding");
      const std::optional<Encoding> encoding = name ? ParseEncoding(*name) : std::nullopt;
      if (!encoding) {
        return ProtocolError{
            Kind::kInvalidValue,
            "audio_format.encoding must be pcm_s16le, pcm_s32le, pcm_f16le, pcm_f32le, pcm_mulaw or pcm_alaw; found " +
                (name ? "'" + Excerpt(*name) + "'" : std::string("no string")),
            "session.audio_format.encoding"};
      }
      const Json* rate = Member(*format, "sample_rate");
      if (rate == nullptr || !rate->is_number_integer() || !SupportedRate(rate->get<int64_t>())) {
        return ProtocolError{Kind::kInvalidValue,
                             "audio_format.sample_rate must be 8000, 16000, 22050, 24000, 44100 or 48000; found " +
                                 (rate == nullptr ? std::string("nothing") : Excerpt(Dump(*rate))),
                             "session.audio_format.sample_rate"};
      }
      options->format = {*encoding, rate->get<int>()};
    }
    const Json* delay = Member(session, "target_streaming_delay_ms");
    if (delay != nullptr && !delay->is_null()) {
      if (!delay->is_number_integer() || !ValidDelayMs(delay->get<int64_t>())) {
        return ProtocolError{
            Kind::kInvalidValue,
            "target_streaming_delay_ms must be " + std::string(kDelayRule) + "; found " + Excerpt(Dump(*delay)),
            "session.target_streaming_delay_ms"};
      }
      options->delay_ms = delay->get<int>();
    }
    return std::nullopt;
  }

  void OnUpdate(const Json& event, Outbox* out) {
    const Json* session = Member(event, "session");
    if (session == nullptr || !session->is_object()) {
      return OnError({Kind::kInvalidEvent, "session.update needs a 'session' object", "session"}, out);
    }
    if (intake_.ever_audio()) {
      return OnError({Kind::kInvalidValue,
                      "session.update is only possible before the first audio; the settings are kept", "session"},
                     out);
    }
    StreamOptions options = options_;
    if (const std::optional<ProtocolError> error = ParseUpdate(*session, &options)) return OnError(*error, out);
    options_ = options;
    Configure(out);
    out->Send(Dump({{"type", "session.updated"},
                    {"session",
                     {{"request_id", config_.session_id},
                      {"model", model_},
                      {"audio_format",
                       {{"encoding", EncodingName(options_.format.encoding)}, {"sample_rate", options_.format.rate}}},
                      {"target_streaming_delay_ms", options_.delay_ms}}}}));
  }

  void OnAppend(const Json& event, Outbox* out) {
    const std::optional<std::string> bytes = DecodeAudioField(event);
    if (!bytes) {
      return OnError(
          {Kind::kInvalidAudio, "Invalid audio data: 'audio' must be a string of base64 with padding", "audio"}, out);
    }
    OnAudio(*bytes, out);
  }

  void OnFlush(Outbox* out) {
    ++ended_;
    intake_.EndUtterance(out);
  }

  void OnEnd(Outbox* out) {
    ending_ = true;
    if (intake_.HasSample(options_.format) || ended_ == 0) OnFlush(out);
    CloseWhenDone(out);
  }

  void OnText(const StreamEvent& event, Outbox* out) {
    builder_.Add(event.text, event.word_mark, event.audio_ms);
    if (!event.text.empty()) {
      text_ += event.text;
      out->frames.push_back({.text = R"({"type":"transcription.text.delta","text":")",
                             .delta = event.text,
                             .suffix = R"("})",
                             .merge_key = "u" + std::to_string(event.utterance)});
    }
    SendSegments(out);
  }

  // Sentences with times as they become complete; their texts were in deltas before.
  void SendSegments(Outbox* out) {
    for (const text::Segment& segment : builder_.TakeSegments()) {
      const double start = static_cast<double>(segment.start_ms) / 1000.0,
                   end = static_cast<double>(segment.end_ms) / 1000.0;
      out->Send(Dump({{"type", "transcription.segment"}, {"text", segment.text}, {"start", start}, {"end", end}}));
      segments_.push_back({{"type", "transcription_segment"}, {"text", segment.text}, {"start", start}, {"end", end}});
    }
  }

  void OnDone(const StreamEvent& event, Outbox* out) {
    ++done_;
    builder_.Finish(event.audio_ms);
    SendSegments(out);
    builder_ = text::TranscriptBuilder();
    const auto seconds = (event.samples + 15999) / 16000;
    out->Send(Dump({{"type", "transcription.done"},
                    {"model", model_},
                    {"text", text_},
                    {"language", nullptr},
                    {"usage",
                     {{"prompt_tokens", event.prompt_tokens},
                      {"completion_tokens", event.completion_tokens},
                      {"total_tokens", event.prompt_tokens + event.completion_tokens},
                      {"prompt_audio_seconds", seconds}}},
                    {"segments", segments_}}));
    text_.clear();
    segments_ = Json::array();
    CloseWhenDone(out);
  }

  void CloseWhenDone(Outbox* out) const {
    if (ending_ && done_ == ended_) out->close = Close{1000, ""};
  }

  SessionConfig config_;
  std::string model_;
  StreamOptions options_;
  AudioIntake intake_;
  bool ending_ = false;
  int64_t ended_ = 0, done_ = 0;  // segments
  std::string text_;
  text::TranscriptBuilder builder_;
  Json segments_ = Json::array();
};

}  // namespace

std::unique_ptr<DialectHandler> MakeMistralHandler(const SessionConfig& config, const std::string& model) {
  return std::make_unique<MistralHandler>(config, model);
}

}  // namespace voxrt::server
