#include "server/protocol/openai_session.h"

#include <array>

namespace voxrt::server {
namespace {

using Kind = ProtocolError::Kind;
using Error = std::optional<ProtocolError>;

struct DelayRow {
  const char* name;
  int ms;
};
constexpr std::array<DelayRow, 5> kDelays = {
    {{"minimal", 160}, {"low", 240}, {"medium", 480}, {"high", 960}, {"xhigh", 2400}}};

Error Invalid(const std::string& param, const std::string& wanted, const Json& found) {
  return ProtocolError{Kind::kInvalidValue,
                       "Invalid value for '" + param + "': expected " + wanted + ", found " + Excerpt(Dump(found)),
                       param};
}

Error ParseTargetDelay(const Json& delay, const std::string& param, OpenAiSession* settings) {
  if (!delay.is_number_integer() || !ValidDelayMs(delay.get<int64_t>())) return Invalid(param, kDelayRule, delay);
  settings->stream.delay_ms = delay.get<int>();
  return std::nullopt;
}

Error ParseDelay(const Json& transcription, const std::string& path, OpenAiSession* settings) {
  const Json* name = Member(transcription, "delay");
  if (name != nullptr && !name->is_null()) {
    bool found = false;
    for (const DelayRow& row : kDelays) {
      if (name->is_string() && name->get_ref<const std::string&>() == row.name) {
        settings->stream.delay_ms = row.ms;
        found = true;
      }
    }
    if (!found) return Invalid(path + ".delay", "minimal, low, medium, high or xhigh", *name);
  }
  const Json* exact = Member(transcription, "target_streaming_delay_ms");
  if (exact != nullptr && !exact->is_null())
    return ParseTargetDelay(*exact, path + ".target_streaming_delay_ms", settings);
  return std::nullopt;
}

Error ParseTranscription(const Json& value, const std::string& path, const SessionConfig& config,
                         OpenAiSession* settings) {
  if (value.is_null()) {
    settings->transcription = Json::object();
    settings->model = config.default_model();
    settings->stream.delay_ms = config.default_delay_ms;
    return std::nullopt;
  }
  if (!value.is_object()) return Invalid(path, "an object", value);
  const Json* model = Member(value, "model");
  if (model != nullptr && !model->is_null()) {
    if (!model->is_string()) return Invalid(path + ".model", "a string", *model);
    if (!config.Serves(model->get<std::string>())) {
      return ProtocolError{Kind::kModelNotFound,
                           "The model `" + Excerpt(model->get<std::string>()) + "` does not exist.", path + ".model"};
    }
    settings->model = model->get<std::string>();
  }
  for (const char* key : {"language", "languages", "prompt", "keywords"}) {
    const Json* echoed = Member(value, key);
    if (echoed != nullptr) settings->transcription[key] = *echoed;
  }
  return ParseDelay(value, path, settings);
}

Error ParseNumber(const Json& object, const char* key, const std::string& path, double lowest, double highest,
                  double* number) {
  const Json* value = Member(object, key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= lowest && value->get<double>() <= highest)) {
    return Invalid(path + "." + key, "a number from " + Dump(Json(lowest)) + " to " + Dump(Json(highest)), *value);
  }
  *number = value->get<double>();
  return std::nullopt;
}

Error ParseTurnDetection(const Json& value, const std::string& path, OpenAiSession* settings) {
  if (value.is_null()) {
    settings->turn_detection = nullptr;
    settings->stream.vad = VadOptions();
    return std::nullopt;
  }
  const std::string type = StringMember(value, "type").value_or("server_vad");
  if (!value.is_object() || (type != "server_vad" && type != "semantic_vad")) {
    return Invalid(path + ".type", "server_vad or semantic_vad", value);
  }
  VadOptions vad;
  vad.enabled = true;
  double prefix_ms = vad.prefix_padding_ms, silence_ms = vad.silence_duration_ms;
  if (Error error = ParseNumber(value, "threshold", path, 0.0, 1.0, &vad.threshold)) return error;
  if (Error error = ParseNumber(value, "prefix_padding_ms", path, 0.0, 5000.0, &prefix_ms)) return error;
  if (Error error = ParseNumber(value, "silence_duration_ms", path, 100.0, 60000.0, &silence_ms)) return error;
  vad.prefix_padding_ms = static_cast<int>(prefix_ms);
  vad.silence_duration_ms = static_cast<int>(silence_ms);
  settings->stream.vad = vad;
  settings->turn_detection = value;
  settings->turn_detection["type"] = type;
  settings->turn_detection["threshold"] = vad.threshold;
  settings->turn_detection["prefix_padding_ms"] = vad.prefix_padding_ms;
  settings->turn_detection["silence_duration_ms"] = vad.silence_duration_ms;
  return std::nullopt;
}

Error ParseGaFormat(const Json& value, const std::string& path, OpenAiSession* settings) {
  if (value.is_null()) {
    settings->stream.format = {Encoding::kPcmS16, 24000};
    return std::nullopt;
  }
  const std::string type = StringMember(value, "type").value_or("");
  if (type == "audio/pcmu" || type == "audio/pcma") {
    settings->stream.format = {type == "audio/pcmu" ? Encoding::kMulaw : Encoding::kAlaw, 8000};
    return std::nullopt;
  }
  if (type != "audio/pcm") return Invalid(path + ".type", "audio/pcm, audio/pcmu or audio/pcma", value);
  int64_t rate = 24000;
  const Json* found = Member(value, "rate");
  if (found != nullptr && !found->is_null()) {
    if (found->is_number_integer()) rate = found->get<int64_t>();
    if (!found->is_number_integer() || (rate != 8000 && rate != 16000 && rate != 24000 && rate != 48000)) {
      return Invalid(path + ".rate", "24000 (or 8000, 16000, 48000)", *found);
    }
  }
  settings->stream.format = {Encoding::kPcmS16, static_cast<int>(rate)};
  return std::nullopt;
}

Error ParseBetaFormat(const Json& value, OpenAiSession* settings) {
  const std::string name = value.is_string() ? value.get<std::string>() : value.is_null() ? "pcm16" : "";
  if (name == "pcm16") {
    settings->stream.format = {Encoding::kPcmS16, 24000};
  } else if (name == "g711_ulaw") {
    settings->stream.format = {Encoding::kMulaw, 8000};
  } else if (name == "g711_alaw") {
    settings->stream.format = {Encoding::kAlaw, 8000};
  } else {
    return Invalid("session.input_audio_format", "pcm16, g711_ulaw or g711_alaw", value);
  }
  return std::nullopt;
}

Error ParseInclude(const Json& value, OpenAiSession* settings) {
  if (value.is_null() || (value.is_array() && value.empty())) {
    settings->include = Json::array();
    return std::nullopt;
  }
  return Invalid("session.include", "an empty list (log probabilities are not available)", value);
}

Json TranscriptionObject(const OpenAiSession& settings) {
  Json object = {{"model", settings.model}};
  for (const auto& [key, value] : settings.transcription.items()) object[key] = value;
  const char* name = DelayName(settings.stream.delay_ms);
  object["delay"] = name == nullptr ? Json(nullptr) : Json(name);
  object["target_streaming_delay_ms"] = settings.stream.delay_ms;
  return object;
}

}  // namespace

const char* DelayName(int delay_ms) {
  for (const DelayRow& row : kDelays) {
    if (row.ms == delay_ms) return row.name;
  }
  return nullptr;
}

bool IsBetaSession(const Json& session) {
  for (const char* key : {"input_audio_format", "input_audio_transcription", "input_audio_noise_reduction",
                          "modalities", "turn_detection"}) {
    if (Member(session, key) != nullptr) return true;
  }
  return false;
}

Error ParseGaSession(const Json& session, const SessionConfig& config, OpenAiSession* settings) {
  const Json* type = Member(session, "type");
  if (type != nullptr && *type != "transcription" && *type != "realtime")
    return Invalid("session.type", "transcription", *type);
  const Json* audio = Member(session, "audio");
  const Json* input = audio == nullptr ? nullptr : Member(*audio, "input");
  if (input != nullptr) {
    const std::string path = "session.audio.input";
    if (const Json* value = Member(*input, "format")) {
      if (Error error = ParseGaFormat(*value, path + ".format", settings)) return error;
    }
    if (const Json* value = Member(*input, "transcription")) {
      if (Error error = ParseTranscription(*value, path + ".transcription", config, settings)) return error;
    }
    if (const Json* value = Member(*input, "turn_detection")) {
      if (Error error = ParseTurnDetection(*value, path + ".turn_detection", settings)) return error;
    }
    if (const Json* value = Member(*input, "noise_reduction")) settings->noise_reduction = *value;
  }
  if (const Json* delay = Member(session, "target_streaming_delay_ms")) {
    if (Error error = ParseTargetDelay(*delay, "session.target_streaming_delay_ms", settings)) return error;
  }
  if (const Json* include = Member(session, "include")) return ParseInclude(*include, settings);
  return std::nullopt;
}

Error ParseBetaSession(const Json& session, const SessionConfig& config, OpenAiSession* settings) {
  if (const Json* value = Member(session, "input_audio_format")) {
    if (Error error = ParseBetaFormat(*value, settings)) return error;
  }
  if (const Json* value = Member(session, "input_audio_transcription")) {
    if (Error error = ParseTranscription(*value, "session.input_audio_transcription", config, settings)) return error;
  }
  if (const Json* value = Member(session, "turn_detection")) {
    if (Error error = ParseTurnDetection(*value, "session.turn_detection", settings)) return error;
  }
  if (const Json* value = Member(session, "input_audio_noise_reduction")) settings->noise_reduction = *value;
  if (const Json* delay = Member(session, "target_streaming_delay_ms")) {
    if (Error error = ParseTargetDelay(*delay, "session.target_streaming_delay_ms", settings)) return error;
  }
  if (const Json* include = Member(session, "include")) return ParseInclude(*include, settings);
  return std::nullopt;
}

Json GaSessionObject(const OpenAiSession& settings, const SessionConfig& config) {
  Json format = {{"type", "audio/pcm"}, {"rate", settings.stream.format.rate}};
  if (settings.stream.format.encoding == Encoding::kMulaw) format = {{"type", "audio/pcmu"}};
  if (settings.stream.format.encoding == Encoding::kAlaw) format = {{"type", "audio/pcma"}};
  Json object = {{"id", config.session_id},
                 {"object", "realtime.transcription_session"},
                 {"type", "transcription"},
                 {"audio",
                  {{"input",
                    {{"format", format},
                     {"transcription", TranscriptionObject(settings)},
                     {"noise_reduction", settings.noise_reduction},
                     {"turn_detection", settings.turn_detection}}}}},
                 {"include", settings.include}};
  if (config.expires_at_unix_s) object["expires_at"] = *config.expires_at_unix_s;
  return object;
}

Json BetaSessionObject(const OpenAiSession& settings, const SessionConfig& config) {
  const char* format = "pcm16";
  if (settings.stream.format.encoding == Encoding::kMulaw) format = "g711_ulaw";
  if (settings.stream.format.encoding == Encoding::kAlaw) format = "g711_alaw";
  Json object = {{"id", config.session_id},
                 {"object", "realtime.transcription_session"},
                 {"modalities", {"text"}},
                 {"input_audio_format", format},
                 {"input_audio_transcription", TranscriptionObject(settings)},
                 {"input_audio_noise_reduction", settings.noise_reduction},
                 {"turn_detection", settings.turn_detection},
                 {"include", settings.include}};
  if (config.expires_at_unix_s) object["expires_at"] = *config.expires_at_unix_s;
  return object;
}

}  // namespace voxrt::server
