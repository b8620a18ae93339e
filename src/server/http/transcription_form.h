// POST /v1/audio/transcriptions: form fields to a checked request. Knows OpenAI's, vLLM's and Mistral's fields.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/http/http_error.h"
#include "server/http/multipart.h"
#include "server/protocol/events.h"

namespace voxrt::server {

enum class ResponseFormat : uint8_t { kJson, kText, kSrt, kVtt, kVerboseJson };
enum class SseForm : uint8_t { kNone, kOpenAi, kMistral, kOldVllm };

struct TranscriptionRequest {
  std::string model;
  ResponseFormat format = ResponseFormat::kJson;
  SseForm sse = SseForm::kNone;
  bool mistral = false;
  bool segment_times = false;
  bool word_times = false;
  bool include_usage = false;  // old vLLM form
  bool continuous_usage = false;
  std::string language;
  double temperature = 0.0;
  int delay_ms = 0;  // 0 = default
};

// Collects fields and hands the file's bytes on.
class TranscriptionForm : public MultipartSink {
 public:
  using FileWriter = std::function<Status(std::string_view bytes)>;
  explicit TranscriptionForm(FileWriter write_file) : write_file_(std::move(write_file)) {}

  Status OnPart(const MultipartHeader& header) override;
  Status OnData(std::string_view bytes) override;
  Status OnPartEnd() override;

  // After the body ended. `user_agent` is a hint for the Mistral form.
  std::variant<TranscriptionRequest, HttpError> Check(const SessionConfig& config, std::string_view user_agent) const;

 private:
  struct Field {
    std::string name;
    std::string value;
  };
  const std::string* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  std::vector<std::string> List(std::string_view name) const;  // all values of name and name[], split at commas
  std::optional<HttpError> CheckFile() const;
  std::optional<HttpError> CheckOutput(TranscriptionRequest* request) const;
  std::optional<HttpError> CheckNumbers(TranscriptionRequest* request) const;
  std::optional<HttpError> CheckUnsupported() const;
  bool LooksLikeMistral(std::string_view user_agent) const;

  FileWriter write_file_;
  std::vector<Field> fields_;
  size_t field_bytes_ = 0;
  int files_ = 0;
  bool in_file_ = false;
  bool file_without_name_ = false;
  uint64_t file_bytes_ = 0;
};

}  // namespace voxrt::server
