#include "server/protocol/realtime.h"

#include "server/protocol/openai_session.h"

namespace voxrt::server {
namespace {

using Kind = ProtocolError::Kind;

bool LeansToOpenAi(const RealtimeHints& hints) {
  return hints.intent || hints.beta_header || hints.realtime_subprotocol || !hints.model.empty();
}

}  // namespace

std::string SessionCreated(const SessionConfig& config, const std::string& model) {
  const char* delay = DelayName(config.default_delay_ms);
  Json session = {{"id", config.session_id},
                  {"object", "realtime.transcription_session"},
                  {"type", "transcription"},
                  {"audio",
                   {{"input",
                     {{"format", {{"type", "audio/pcm"}, {"rate", 24000}}},
                      {"transcription", {{"model", model}, {"delay", delay == nullptr ? Json(nullptr) : Json(delay)}}},
                      {"noise_reduction", nullptr},
                      {"turn_detection", nullptr}}}}},
                  {"include", Json::array()},
                  {"request_id", config.session_id},
                  {"model", model},
                  {"audio_format", {{"encoding", "pcm_s16le"}, {"sample_rate", 16000}}},
                  {"target_streaming_delay_ms", config.default_delay_ms}};
  if (config.expires_at_unix_s) session["expires_at"] = *config.expires_at_unix_s;
  return Dump({{"type", "session.created"},
               {"event_id", "event_" + config.session_id.substr(config.session_id.find('-') + 1) + "_0"},
               {"id", config.session_id},
               {"created", config.created_unix_s},
               {"session", session}});
}

RealtimeProtocol::RealtimeProtocol(SessionConfig config, RealtimeHints hints)
    : config_(std::move(config)), hints_(std::move(hints)), openai_leaning_(LeansToOpenAi(hints_)) {
  if (hints_.mistral_path) {
    handler_ = MakeMistralHandler(config_, hints_.model.empty() ? config_.default_model() : hints_.model);
  } else if (openai_leaning_) {
    handler_ = MakeOpenAiHandler(config_, hints_.beta_header);
  } else {
    handler_ = MakeVllmHandler(config_);
  }
}

void RealtimeProtocol::Open(Outbox* out) {
  if (hints_.mistral_path) {
    if (!hints_.model.empty() && !config_.Serves(hints_.model)) {
      return handler_->OnError(
          {Kind::kModelNotFound, "The model `" + Excerpt(hints_.model) + "` does not exist.", "model"}, out);
    }
    Bind(std::move(handler_), out);
  }
  out->Send(SessionCreated(
      config_, hints_.model.empty() || !config_.Serves(hints_.model) ? config_.default_model() : hints_.model));
}

void RealtimeProtocol::OnText(std::string_view message, Outbox* out) {
  const std::optional<Json> event = ParseJson(message);
  if (!event) return handler_->OnError({Kind::kInvalidJson, "Invalid JSON", {}}, out);
  const std::optional<std::string> type = StringMember(*event, "type");
  if (!type) return handler_->OnError({Kind::kInvalidEvent, "The 'type' field is missing.", "type"}, out);
  if (!bound_ && !TryBind(*type, *event, out)) return;
  // An update says what the held audio is; a commit comes after that audio.
  const bool is_update = type->ends_with("session.update");
  if (bound_ && !is_update) ReleaseAudio(out);
  handler_->OnEvent(*type, *event, out);
  if (bound_) ReleaseAudio(out);
}

void RealtimeProtocol::OnBinary(std::string_view message, Outbox* out) {
  if (message.empty()) return;
  handler_->OnError({Kind::kInvalidEvent, "Binary messages are not understood: send JSON text with base64 audio", {}},
                    out);
}

void RealtimeProtocol::EndAudio(const std::string& message, Outbox* out) {
  if (!bound_ && unbound_audio_.empty()) return;
  // With an OpenAI leaning a commit alone would do; vLLM's needs an update first.
  if (!bound_ && openai_leaning_) Bind(MakeOpenAiHandler(config_, hints_.beta_header), out);
  if (!bound_) return OnFault(Fault::kGoingAway, message, out);
  ReleaseAudio(out);
  handler_->EndAudio(out);
}

// True when the dialect is known now and the event is still to be handled by it.
bool RealtimeProtocol::TryBind(const std::string& type, const Json& event, Outbox* out) {
  if (type == "input_audio_buffer.append") {
    HoldAudio(event, out);
    return false;
  }
  if (type == "transcription_session.update") {
    Bind(MakeOpenAiHandler(config_, true), out);
  } else if (type == "session.update") {
    const Json* session = Member(event, "session");
    if (session != nullptr && session->is_object()) {
      Bind(MakeOpenAiHandler(config_, IsBetaSession(*session)), out);
    } else if (Member(event, "model") != nullptr) {
      Bind(MakeVllmHandler(config_), out);
    } else {
      handler_->OnEvent(type, event, out);  // an error in the leaning's shape
      return false;
    }
  } else if (type == "input_audio_buffer.commit" && (!openai_leaning_ || Member(event, "final") != nullptr)) {
    Bind(MakeVllmHandler(config_), out);
  } else if (openai_leaning_ && (type == "input_audio_buffer.commit" || type == "input_audio_buffer.clear")) {
    Bind(MakeOpenAiHandler(config_, hints_.beta_header), out);
  }
  return true;  // anything else: the leaning's handler words the error
}

void RealtimeProtocol::HoldAudio(const Json& event, Outbox* out) {
  const std::optional<std::string> bytes = DecodeAudioField(event);
  if (!bytes) {
    return handler_->OnError(
        {Kind::kInvalidAudio,
         openai_leaning_ ? "Invalid 'audio': expected a string of base64 with padding" : "Invalid audio data", "audio"},
        out);
  }
  if (static_cast<int64_t>(unbound_audio_.size() + bytes->size()) > config_.max_unbound_bytes) {
    return handler_->OnError(
        {Kind::kBufferFull, "Too much audio before the first session.update or commit; this chunk is dropped", "audio"},
        out);
  }
  unbound_audio_ += *bytes;
}

void RealtimeProtocol::ReleaseAudio(Outbox* out) {
  if (unbound_audio_.empty()) return;
  handler_->OnAudio(unbound_audio_, out);
  unbound_audio_ = std::string();
}

void RealtimeProtocol::Bind(std::unique_ptr<DialectHandler> handler, Outbox* out) {
  handler_ = std::move(handler);
  bound_ = true;
  handler_->OnBind(out);
}

}  // namespace voxrt::server
