// Both parsers read through FieldReader, which remembers the first field that is wrong, so that the reading code is a
// plain list of fields. What the model's code cannot vary (16 kHz, hop 160, SwiGLU, ...) is checked and refused by
// name.
#include "weights/model_config.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/json.h"

namespace voxrt::weights {
namespace {

using base::Json;

constexpr char kWanted[] = "expected Voxtral-Mini-4B-Realtime-2602 or a checkpoint of its kind";
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxVocabulary = int64_t{1} << 22;
constexpr int64_t kMaxWindow = int64_t{1} << 24;
constexpr double kLeastReal = 1e-30;  // a normal float, so that no accepted value becomes 0 when kept as one
constexpr double kMostReal = 1e15;

Status Bad(std::string message) { return Status(StatusCode::kInvalidModel, std::move(message)); }

// The fields of one JSON object. `path` names the object in messages ("params.json: multimodal.").
class FieldReader {
 public:
  FieldReader(const Json& object, std::string path, Status* status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (!object.is_object()) Fail("", fmt::format("{}, expected an object", object.TypeName()));
  }

  FieldReader Section(const char* key) {
    static const Json empty = Json::MakeObject();
    const Json* section = object_.Find(key);
    if (section == nullptr) Fail(key, "missing");
    return FieldReader(section != nullptr ? *section : empty, fmt::format("{}{}.", path_, key), status_);
  }

  bool Has(const char* key) const {
    const Json* value = object_.Find(key);
    return value != nullptr && !value->is_null();
  }

  // An integer from 1 to `most`; a string of digits counts too (sliding_window is one in some files).
  int64_t Size(const char* key, int64_t most, std::optional<int64_t> fallback = std::nullopt) {
    if (fallback.has_value() && !Has(key)) return *fallback;
    const Json* value = object_.Find(key);
    if (value == nullptr) return Fail(key, fmt::format("missing, expected an integer from 1 to {}", most));
    const std::optional<int64_t> integer = Integer(*value);
    if (!integer.has_value()) return Fail(key, fmt::format("{}, expected an integer from 1 to {}", Show(*value), most));
    if (*integer < 1 || *integer > most) {
      return Fail(key, fmt::format("{}, expected an integer from 1 to {}", *integer, most));
    }
    return *integer;
  }

  double Positive(const char* key, std::optional<double> fallback = std::nullopt) {
    if (fallback.has_value() && !Has(key)) return *fallback;
    const Json* value = object_.Find(key);
    const std::optional<double> number = value != nullptr ? value->AsDouble() : std::nullopt;
    if (number.has_value() && *number >= kLeastReal && *number <= kMostReal) return *number;
    Fail(key, fmt::format("{}, expected a positive number from {} to {}", value != nullptr ? Show(*value) : "missing",
                          kLeastReal, kMostReal));
    return 1.0;
  }

  // A field that may be absent, but has to be `expected` where it is there.
  void Expect(const char* key, const Json& expected) {
    if (!Has(key)) return;
    const Json& value = *object_.Find(key);
    const bool same =
        expected.is_number() && value.is_number() ? *expected.AsDouble() == *value.AsDouble() : value == expected;
    if (!same) Fail(key, fmt::format("{}, expected {}: a checkpoint of another kind", Show(value), expected.Dump()));
  }

 private:
  static std::optional<int64_t> Integer(const Json& value) {
    if (const std::string* text = value.AsString()) {
      int64_t integer = 0;
      const char* const end = text->data() + text->size();
      const auto [stop, error] = std::from_chars(text->data(), end, integer);
      return error == std::errc() && stop == end ? std::optional<int64_t>(integer) : std::nullopt;
    }
    return value.AsInt();
  }

  static std::string Show(const Json& value) {
    if (const std::string* text = value.AsString()) return base::QuoteForMessage(*text);
    return value.is_array() || value.is_object() ? value.TypeName() : value.Dump();
  }

  int64_t Fail(const char* key, std::string_view what) {
    std::string name = path_ + key;
    if (name.ends_with('.')) name.pop_back();  // the object itself
    if (status_->ok()) *status_ = Bad(fmt::format("{} is {}", name, what));
    return 1;
  }

  const Json& object_;
  std::string path_;
  Status* status_;
};

Status CheckStack(const StackConfig& stack, const char* name) {
  if (stack.head_dim % 2 != 0)
    return Bad(fmt::format("{} head_dim is {}, expected an even number", name, stack.head_dim));
  if (stack.heads % stack.kv_heads != 0) {
    return Bad(
        fmt::format("{} has {} heads and {} key/value heads, expected a multiple", name, stack.heads, stack.kv_heads));
  }
  return Status();
}

Status CheckConfig(const ModelConfig& config) {
  VOXRT_RETURN_IF_ERROR(CheckStack(config.encoder, "encoder"));
  VOXRT_RETURN_IF_ERROR(CheckStack(config.decoder, "decoder"));
  if (config.encoder.heads != config.encoder.kv_heads) {
    return Bad(fmt::format("encoder has {} heads and {} key/value heads, expected as many", config.encoder.heads,
                           config.encoder.kv_heads));
  }
  if (config.decoder.dim % 2 != 0)
    return Bad(fmt::format("decoder width is {}, expected an even number", config.decoder.dim));
  return Status();
}

Result<Json> ParseObject(std::string_view text, const char* file) {
  const base::JsonLimits limits{.max_bytes = size_t{4} << 20, .max_depth = 32, .max_values = 100'000};
  Result<Json> json = base::ParseJson(text, limits);
  if (!json.ok()) return Bad(fmt::format("{}: {}; download it again", file, json.status().message()));
  if (!json->is_object()) return Bad(fmt::format("{}: found {}, expected an object", file, json->TypeName()));
  return json;
}

// The name of an offline Voxtral by the size of its language model.
const char* OfflineVoxtralName(std::optional<int64_t> dim, std::optional<int64_t> layers) {
  if (dim == 3072 && layers == 30) return "Voxtral-Mini-3B-2507";
  if (dim == 5120 && layers == 40) return "Voxtral-Small-24B-2507";
  return "an offline Voxtral";
}

std::optional<int64_t> IntOf(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value != nullptr ? value->AsInt() : std::nullopt;
}

Status CheckMistralKind(const Json& root) {
  if (root.Find("multimodal") == nullptr) {
    const char* found = root.Find("vision_encoder") != nullptr ? "a vision model" : "a text model";
    return Bad(fmt::format("params.json is of {} (no multimodal section), {}", found, kWanted));
  }
  const Json* delay = root.Find("ada_rms_norm_t_cond");
  if (delay == nullptr || delay->AsBool() != true) {
    return Bad(fmt::format("params.json is of {} (no ada_rms_norm_t_cond), {}",
                           OfflineVoxtralName(IntOf(root, "dim"), IntOf(root, "n_layers")), kWanted));
  }
  return Status();
}

StackConfig ReadMistralStack(FieldReader& fields) {
  StackConfig stack;
  stack.dim = fields.Size("dim", kMaxWidth);
  stack.layers = static_cast<int>(fields.Size("n_layers", kMaxLayers));
  stack.head_dim = static_cast<int>(fields.Size("head_dim", 4096));
  stack.hidden_dim = fields.Size("hidden_dim", kMaxWidth);
  stack.heads = static_cast<int>(fields.Size("n_heads", 1024));
  stack.kv_heads = static_cast<int>(fields.Size("n_kv_heads", 1024));
  stack.rope_theta = fields.Positive("rope_theta");
  stack.norm_epsilon = static_cast<float>(fields.Positive("norm_eps"));
  stack.window = fields.Size("sliding_window", kMaxWindow);
  return stack;
}

// What this program's audio front end is made for; the fields of AudioConfig other than these two are constants of it.
void ReadMistralAudio(FieldReader& fields, AudioConfig* audio) {
  fields.Expect("sampling_rate", audio->sample_rate);
  fields.Expect("frame_rate", static_cast<double>(audio->sample_rate) / audio->samples_per_token);
  fields.Expect("hop_length", audio->hop_samples);
  fields.Expect("window_size", audio->window_samples);
  fields.Expect("transcription_format", "streaming");
  audio->mel_bins = static_cast<int>(fields.Size("num_mel_bins", 1024));
  audio->log_mel_max = static_cast<float>(fields.Positive("global_log_mel_max", 1.5));
}

StackConfig ReadHuggingFaceStack(FieldReader& fields, const StackConfig& defaults) {
  StackConfig stack;
  stack.dim = fields.Size("hidden_size", kMaxWidth, defaults.dim);
  stack.layers = static_cast<int>(fields.Size("num_hidden_layers", kMaxLayers, defaults.layers));
  stack.head_dim = static_cast<int>(fields.Size("head_dim", 4096, defaults.head_dim));
  stack.hidden_dim = fields.Size("intermediate_size", kMaxWidth, defaults.hidden_dim);
  stack.heads = static_cast<int>(fields.Size("num_attention_heads", 1024, defaults.heads));
  stack.norm_epsilon = static_cast<float>(fields.Positive("rms_norm_eps", defaults.norm_epsilon));
  stack.window = fields.Size("sliding_window", kMaxWindow, defaults.window);
  if (fields.Has("rope_parameters")) {
    FieldReader rope = fields.Section("rope_parameters");
    rope.Expect("rope_type", "default");
    stack.rope_theta = rope.Positive("rope_theta", defaults.rope_theta);
  } else {
    stack.rope_theta = fields.Positive("rope_theta", defaults.rope_theta);
  }
  fields.Expect("hidden_act", "silu");
  return stack;
}

Status CheckHuggingFaceKind(const Json& root) {
  const Json* type = root.Find("model_type");
  const std::string* name = type != nullptr ? type->AsString() : nullptr;
  if (name == nullptr) return Bad(fmt::format("config.json has no model_type, {}", kWanted));
  if (*name == "voxtral_realtime") return Status();
  if (*name != "voxtral") {
    return Bad(fmt::format("config.json is of a model of type {}, {}", base::QuoteForMessage(*name), kWanted));
  }
  const Json* text = root.Find("text_config");
  const Json none;
  const Json& stack = text != nullptr ? *text : none;
  return Bad(fmt::format("config.json is of {} (model_type \"voxtral\"), {}",
                         OfflineVoxtralName(IntOf(stack, "hidden_size"), IntOf(stack, "num_hidden_layers")), kWanted));
}

// feature_extractor.global_log_mel_max of processor_config.json (or at its top level, as in preprocessor_config.json).
Status ReadProcessor(std::string_view processor_config_json, AudioConfig* audio) {
  if (processor_config_json.empty()) return Status();
  VOXRT_ASSIGN_OR_RETURN(const Json root, ParseObject(processor_config_json, "processor_config.json"));
  const Json* extractor = root.Find("feature_extractor");
  Status status;
  FieldReader fields(extractor != nullptr ? *extractor : root, "processor_config.json: ", &status);
  fields.Expect("sampling_rate", audio->sample_rate);
  fields.Expect("hop_length", audio->hop_samples);
  fields.Expect("n_fft", audio->window_samples);
  fields.Expect("win_length", audio->window_samples);
  audio->log_mel_max = static_cast<float>(fields.Positive("global_log_mel_max", audio->log_mel_max));
  return status;
}

// The shortest decimal of a float, so that 1e-5f is written 1e-05.
double ShortDecimal(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

Json WriteHuggingFaceStack(const StackConfig& stack, const char* model_type) {
  return Json::MakeObject(
      {{"model_type", model_type},
       {"hidden_size", stack.dim},
       {"num_hidden_layers", stack.layers},
       {"head_dim", stack.head_dim},
       {"intermediate_size", stack.hidden_dim},
       {"num_attention_heads", stack.heads},
       {"num_key_value_heads", stack.kv_heads},
       {"hidden_act", "silu"},
       {"rms_norm_eps", ShortDecimal(stack.norm_epsilon)},
       {"sliding_window", stack.window},
       {"rope_parameters", Json::MakeObject({{"rope_type", "default"}, {"rope_theta", stack.rope_theta}})}});
}

Json WriteStack(const StackConfig& stack) {
  return Json::MakeObject({{"dim", stack.dim},
                           {"n_layers", stack.layers},
                           {"head_dim", stack.head_dim},
                           {"hidden_dim", stack.hidden_dim},
                           {"n_heads", stack.heads},
                           {"n_kv_heads", stack.kv_heads},
                           {"rope_theta", stack.rope_theta},
                           {"norm_eps", ShortDecimal(stack.norm_epsilon)},
                           {"sliding_window", stack.window}});
}

}  // namespace

Result<ModelConfig> ParseMistralParams(std::string_view params_json) {
  VOXRT_ASSIGN_OR_RETURN(const Json root, ParseObject(params_json, "params.json"));
  VOXRT_RETURN_IF_ERROR(CheckMistralKind(root));
  ModelConfig config;
  Status status;
  FieldReader fields(root, "params.json: ", &status);
  config.decoder = ReadMistralStack(fields);
  config.vocab_size = fields.Size("vocab_size", kMaxVocabulary);
  config.ada_dim = fields.Size("ada_rms_norm_t_cond_dim", kMaxWidth);
  fields.Expect("use_biases", false);
  fields.Expect("causal", true);
  fields.Expect("tied_embeddings", true);

  FieldReader whisper = fields.Section("multimodal").Section("whisper_model_args");
  FieldReader encoder = whisper.Section("encoder_args");
  config.encoder = ReadMistralStack(encoder);
  encoder.Expect("causal", true);
  encoder.Expect("use_biases", true);
  encoder.Expect("pos_embed", "rope");
  encoder.Expect("ffn_type", "swiglu");
  encoder.Expect("norm_type", "rms_norm");
  FieldReader audio = encoder.Section("audio_encoding_args");
  ReadMistralAudio(audio, &config.audio);
  FieldReader downsample = whisper.Section("downsample_args");
  downsample.Expect("downsample_factor", config.audio.encoder_per_token);
  if (!status.ok()) return status;
  VOXRT_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

Result<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json, std::string_view processor_config_json) {
  // What transformers' VoxtralRealtimeConfig takes when config.json leaves a field out.
  const StackConfig encoder_defaults{
      .dim = 1280, .layers = 32, .head_dim = 64, .hidden_dim = 5120, .heads = 32, .window = 750};
  const StackConfig decoder_defaults{
      .dim = 3072, .layers = 26, .head_dim = 128, .hidden_dim = 9216, .heads = 32, .window = 8192};
  VOXRT_ASSIGN_OR_RETURN(const Json root, ParseObject(config_json, "config.json"));
  VOXRT_RETURN_IF_ERROR(CheckHuggingFaceKind(root));
  ModelConfig config;
  Status status;
  FieldReader fields(root, "config.json: ", &status);
  FieldReader audio = fields.Section("audio_config");
  config.encoder = ReadHuggingFaceStack(audio, encoder_defaults);
  config.encoder.kv_heads = config.encoder.heads;  // transformers has no other encoder
  config.audio.mel_bins = static_cast<int>(audio.Size("num_mel_bins", 1024, 128));
  audio.Expect("activation_function", "gelu");
  FieldReader text = fields.Section("text_config");
  config.decoder = ReadHuggingFaceStack(text, decoder_defaults);
  config.decoder.kv_heads = static_cast<int>(text.Size("num_key_value_heads", 1024, 8));
  config.vocab_size = text.Size("vocab_size", kMaxVocabulary, 131072);
  fields.Expect("downsample_factor", config.audio.encoder_per_token);
  fields.Expect("audio_length_per_tok", config.audio.mel_per_token);
  fields.Expect("projector_hidden_act", "gelu");
  if (!status.ok()) return status;
  VOXRT_RETURN_IF_ERROR(ReadProcessor(processor_config_json, &config.audio));
  VOXRT_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

std::string WriteMistralParams(const ModelConfig& config) {
  const AudioConfig& audio = config.audio;
  Json encoder = WriteStack(config.encoder);
  encoder["vocab_size"] = config.vocab_size;
  encoder["use_biases"] = true;
  encoder["use_cache"] = false;
  encoder["causal"] = true;
  encoder["pos_embed"] = "rope";
  encoder["max_source_positions"] = nullptr;
  encoder["ffn_type"] = "swiglu";
  encoder["norm_type"] = "rms_norm";
  encoder["audio_encoding_args"] =
      Json::MakeObject({{"sampling_rate", audio.sample_rate},
                        {"frame_rate", static_cast<double>(audio.sample_rate) / audio.samples_per_token},
                        {"num_mel_bins", audio.mel_bins},
                        {"hop_length", audio.hop_samples},
                        {"window_size", audio.window_samples},
                        {"chunk_length_s", nullptr},
                        {"global_log_mel_max", static_cast<double>(audio.log_mel_max)},
                        {"transcription_format", "streaming"}});
  Json root = WriteStack(config.decoder);
  root["vocab_size"] = config.vocab_size;
  root["use_biases"] = false;
  root["causal"] = true;
  root["tied_embeddings"] = true;
  root["model_parallel"] = 1;
  root["model_max_length"] = 131072;
  root["multimodal"]["whisper_model_args"] =
      Json::MakeObject({{"encoder_args", std::move(encoder)},
                        {"downsample_args", Json::MakeObject({{"downsample_factor", audio.encoder_per_token}})}});
  root["ada_rms_norm_t_cond"] = true;
  root["ada_rms_norm_t_cond_dim"] = config.ada_dim;
  return root.Dump(2) + "\n";
}

std::string WriteHuggingFaceConfig(const ModelConfig& config) {
  Json audio = WriteHuggingFaceStack(config.encoder, "voxtral_realtime_encoder");
  audio["num_mel_bins"] = config.audio.mel_bins;
  audio["activation_function"] = "gelu";
  audio["vocab_size"] = config.vocab_size;
  Json text = WriteHuggingFaceStack(config.decoder, "voxtral_realtime_text");
  text["vocab_size"] = config.vocab_size;
  text["max_position_embeddings"] = 131072;
  text["tie_word_embeddings"] = true;
  Json root = Json::MakeObject({{"model_type", "voxtral_realtime"},
                                {"architectures", Json::MakeArray({"VoxtralRealtimeForConditionalGeneration"})},
                                {"audio_config", std::move(audio)},
                                {"text_config", std::move(text)},
                                {"audio_length_per_tok", config.audio.mel_per_token},
                                {"default_num_delay_tokens", 6},
                                {"downsample_factor", config.audio.encoder_per_token},
                                {"projector_hidden_act", "gelu"},
                                {"tie_word_embeddings", true}});
  return root.Dump(2) + "\n";
}

}  // namespace voxrt::weights
