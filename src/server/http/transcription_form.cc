#include "server/http/transcription_form.h"

#include <charconv>

#include "server/http/credentials.h"
#include "server/protocol/json.h"

namespace voxrt::server {
namespace {

constexpr size_t kMaxFieldBytes = 1 << 20;  // all fields together

std::optional<double> ParseNumber(const std::string& text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(const std::string& text) {
  if (EqualsIgnoreCase(text, "true") || text == "1") return true;
  if (EqualsIgnoreCase(text, "false") || text == "0" || text.empty()) return false;
  return std::nullopt;
}

std::optional<ResponseFormat> ParseFormat(const std::string& text) {
  if (text.empty() || text == "json") return ResponseFormat::kJson;
  if (text == "text") return ResponseFormat::kText;
  if (text == "srt") return ResponseFormat::kSrt;
  if (text == "vtt") return ResponseFormat::kVtt;
  if (text == "verbose_json") return ResponseFormat::kVerboseJson;
  return std::nullopt;
}

std::string Quoted(const std::string& text) { return "'" + Excerpt(text, 80) + "'"; }

}  // namespace

Status TranscriptionForm::OnPart(const MultipartHeader& header) {
  in_file_ = header.name == "file";
  if (in_file_) {
    ++files_;
    file_without_name_ = !header.filename.has_value();
    return {};
  }
  fields_.push_back({header.name, {}});
  field_bytes_ += header.name.size();
  return {};
}

Status TranscriptionForm::OnData(std::string_view bytes) {
  if (in_file_) {
    if (files_ > 1 || file_without_name_) return {};  // refused by Check
    file_bytes_ += bytes.size();
    return write_file_(bytes);
  }
  field_bytes_ += bytes.size();
  if (field_bytes_ > kMaxFieldBytes)
    return {StatusCode::kResourceExhausted, "The form fields are larger than 1 MiB together"};
  fields_.back().value.append(bytes);
  return {};
}

Status TranscriptionForm::OnPartEnd() {
  in_file_ = false;
  return {};
}

const std::string* TranscriptionForm::Find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name == name) return &field.value;
  }
  return nullptr;
}

std::vector<std::string> TranscriptionForm::List(std::string_view name) const {
  std::vector<std::string> items;
  for (const Field& field : fields_) {
    if (field.name != name && field.name != std::string(name) + "[]") continue;
    for (std::string& item : SplitList(field.value)) items.push_back(std::move(item));
  }
  return items;
}

bool TranscriptionForm::LooksLikeMistral(std::string_view user_agent) const {
  for (const char* name : {"diarize", "context_bias", "file_url", "file_id", "timestamp_granularities"}) {
    if (Has(name)) return true;
  }
  return user_agent.starts_with("mistral-client-") || user_agent.starts_with("speakeasy-sdk");
}

std::optional<HttpError> TranscriptionForm::CheckFile() const {
  for (const char* name : {"file_url", "file_id"}) {
    const std::string* value = Find(name);
    if (value != nullptr && !value->empty())
      return BadRequest(std::string(name) + " is not supported: upload the audio as 'file'", name);
  }
  if (files_ == 0)
    return BadRequest("The form has no 'file' part: send the audio as multipart/form-data with a part named 'file'",
                      "file");
  if (files_ > 1) return BadRequest("The form has " + std::to_string(files_) + " 'file' parts, expected one", "file");
  if (file_without_name_)
    return BadRequest("The 'file' part has no file name, expected filename=\"...\" in its Content-Disposition", "file");
  if (file_bytes_ == 0) return BadRequest("The uploaded file is empty", "file");
  return std::nullopt;
}

std::optional<HttpError> TranscriptionForm::CheckUnsupported() const {
  const std::string* diarize = Find("diarize");
  if (diarize != nullptr && ParseBool(*diarize) != false)
    return BadRequest("diarize is not supported, found " + Quoted(*diarize), "diarize");
  for (const std::string& item : List("include")) {
    return BadRequest("include[] supports nothing (log probabilities are not available), found " + Quoted(item),
                      "include[]");
  }
  return std::nullopt;
}

std::optional<HttpError> TranscriptionForm::CheckNumbers(TranscriptionRequest* request) const {
  if (const std::string* text = Find("temperature"); text != nullptr && !text->empty()) {
    const std::optional<double> value = ParseNumber(*text);
    if (!value || !(*value >= 0.0 && *value <= 1.0))
      return BadRequest("temperature must be a number from 0 to 1, found " + Quoted(*text), "temperature");
    request->temperature = *value;
  }
  if (const std::string* text = Find("target_streaming_delay_ms"); text != nullptr && !text->empty()) {
    const std::optional<double> value = ParseNumber(*text);
    if (!value || *value != static_cast<double>(static_cast<int>(*value)) ||
        !ValidDelayMs(static_cast<int64_t>(*value))) {
      return BadRequest("target_streaming_delay_ms must be " + std::string(kDelayRule) + ", found " + Quoted(*text),
                        "target_streaming_delay_ms");
    }
    request->delay_ms = static_cast<int>(*value);
  }
  return std::nullopt;
}

std::optional<HttpError> TranscriptionForm::CheckOutput(TranscriptionRequest* request) const {
  if (const std::string* text = Find("response_format")) {
    const std::optional<ResponseFormat> format = ParseFormat(*text);
    if (!format)
      return BadRequest("response_format must be json, text, srt, vtt or verbose_json, found " + Quoted(*text),
                        "response_format");
    request->format = *format;
  }
  const std::string* stream_text = Find("stream");
  const std::optional<bool> stream = stream_text == nullptr ? false : ParseBool(*stream_text);
  if (!stream) return BadRequest("stream must be true or false, found " + Quoted(*stream_text), "stream");
  if (*stream && request->format != ResponseFormat::kJson) {
    return BadRequest("stream=true works with response_format=json only, found " + Quoted(*Find("response_format")),
                      "stream");
  }
  for (const std::string& item : List("timestamp_granularities")) {
    if (item == "segment") {
      request->segment_times = true;
    } else if (item == "word") {
      request->word_times = true;
    } else {
      return BadRequest("timestamp_granularities must be segment or word, found " + Quoted(item),
                        "timestamp_granularities[]");
    }
  }
  if (*stream) {
    request->sse = request->mistral              ? SseForm::kMistral
                   : Has("stream_include_usage") ? SseForm::kOldVllm
                                                 : SseForm::kOpenAi;
    const std::string* usage = Find("stream_include_usage");
    const std::string* continuous = Find("stream_continuous_usage_stats");
    request->include_usage = usage != nullptr && ParseBool(*usage) == true;
    request->continuous_usage = request->include_usage && continuous != nullptr && ParseBool(*continuous) == true;
  }
  return std::nullopt;
}

std::variant<TranscriptionRequest, HttpError> TranscriptionForm::Check(const SessionConfig& config,
                                                                       std::string_view user_agent) const {
  TranscriptionRequest request;
  request.mistral = LooksLikeMistral(user_agent);
  if (std::optional<HttpError> error = CheckFile()) return *error;
  if (std::optional<HttpError> error = CheckUnsupported()) return *error;
  if (std::optional<HttpError> error = CheckNumbers(&request)) return *error;
  if (std::optional<HttpError> error = CheckOutput(&request)) return *error;
  const std::string* model = Find("model");
  request.model = model == nullptr || model->empty() ? config.default_model() : *model;
  if (!config.Serves(request.model))
    return HttpError{404, "The model `" + Excerpt(request.model) + "` does not exist.", "model", "model_not_found"};
  if (const std::string* language = Find("language")) request.language = *language;
  return request;
}

}  // namespace voxrt::server
