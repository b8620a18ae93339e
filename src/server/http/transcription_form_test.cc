#include "server/http/transcription_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;
using ::testing::HasSubstr;

SessionConfig Config() {
  SessionConfig config;
  config.models = {"demo", "other"};
  return config;
}

std::variant<TranscriptionRequest, HttpError> Check(const Fields& fields, std::string_view user_agent = "",
                                                    const char* file = "audio") {
  std::string written;
  TranscriptionForm form([&](std::string_view bytes) {
    written += bytes;
    return Status();
  });
  if (file != nullptr) {
    EXPECT_TRUE(form.OnPart({"file", "a.wav", ""}).ok());
    if (*file != '\0') {
      EXPECT_TRUE(form.OnData(file).ok());
    }
    EXPECT_TRUE(form.OnPartEnd().ok());
    EXPECT_EQ(written, file);
  }
  for (const auto& [name, value] : fields) {
    EXPECT_TRUE(form.OnPart({name, std::nullopt, ""}).ok());
    EXPECT_TRUE(form.OnData(value).ok());
    EXPECT_TRUE(form.OnPartEnd().ok());
  }
  return form.Check(Config(), user_agent);
}

TranscriptionRequest Good(const Fields& fields, std::string_view user_agent = "") {
  const auto result = Check(fields, user_agent);
  if (const auto* error = std::get_if<HttpError>(&result)) ADD_FAILURE() << error->message;
  const auto* request = std::get_if<TranscriptionRequest>(&result);
  return request == nullptr ? TranscriptionRequest() : *request;
}

void ExpectRefused(const Fields& fields, int status, const std::string& param, const char* file = "audio") {
  const auto result = Check(fields, "", file);
  const auto* error = std::get_if<HttpError>(&result);
  ASSERT_NE(error, nullptr) << param;
  EXPECT_EQ(error->status, status);
  EXPECT_EQ(error->param, param);
}

TEST(TranscriptionForm, Defaults) {
  const TranscriptionRequest request = Good({});
  EXPECT_EQ(request.model, "demo");
  EXPECT_EQ(request.format, ResponseFormat::kJson);
  EXPECT_EQ(request.sse, SseForm::kNone);
  EXPECT_EQ(request.temperature, 0.0);
  EXPECT_FALSE(request.mistral);
}

TEST(TranscriptionForm, EveryFormatIsRead) {
  EXPECT_EQ(Good({{"response_format", "text"}}).format, ResponseFormat::kText);
  EXPECT_EQ(Good({{"response_format", "srt"}}).format, ResponseFormat::kSrt);
  EXPECT_EQ(Good({{"response_format", "vtt"}}).format, ResponseFormat::kVtt);
  EXPECT_EQ(Good({{"response_format", "verbose_json"}}).format, ResponseFormat::kVerboseJson);
}

TEST(TranscriptionForm, TheStreamFormFollowsTheFields) {
  EXPECT_EQ(Good({{"stream", "true"}}).sse, SseForm::kOpenAi);
  EXPECT_EQ(Good({{"stream", "true"}, {"diarize", "false"}}).sse, SseForm::kMistral);
  EXPECT_EQ(Good({{"stream", "true"}, {"timestamp_granularities", "segment"}}).sse, SseForm::kMistral);
  EXPECT_EQ(Good({{"stream", "true"}, {"timestamp_granularities[]", "segment"}}).sse, SseForm::kOpenAi);
  EXPECT_EQ(Good({{"stream", "True"}, {"stream_include_usage", "true"}}).sse, SseForm::kOldVllm);
  EXPECT_EQ(Good({{"stream", "true"}}, "mistral-client-typescript/1.15.1").sse, SseForm::kMistral);
  EXPECT_EQ(Good({{"stream", "false"}}).sse, SseForm::kNone);
}

TEST(TranscriptionForm, GranularitiesAreSplitAtCommas) {
  const TranscriptionRequest request = Good({{"timestamp_granularities", "segment,word"}});
  EXPECT_TRUE(request.segment_times && request.word_times);
  EXPECT_TRUE(Good({{"timestamp_granularities[]", "word"}}).word_times);
}

TEST(TranscriptionForm, AcceptedButUnusedFieldsPass) {
  Good({{"prompt", "x"},
        {"keywords[]", "a"},
        {"chunking_strategy[type]", "server_vad"},
        {"languages[]", "en"},
        {"whatever", ""},
        {"context_bias", "a,b"}});
  EXPECT_EQ(Good({{"language", "fr"}}).language, "fr");
  EXPECT_EQ(Good({{"target_streaming_delay_ms", "960"}}).delay_ms, 960);
  EXPECT_EQ(Good({{"temperature", "0.25"}}).temperature, 0.25);
}

TEST(TranscriptionForm, RefusalsNameTheParameter) {
  ExpectRefused({}, 400, "file", nullptr);
  ExpectRefused({}, 400, "file", "");
  ExpectRefused({{"response_format", "diarized_json"}}, 400, "response_format");
  ExpectRefused({{"stream", "maybe"}}, 400, "stream");
  for (const char* format : {"srt", "vtt", "text", "verbose_json"})
    ExpectRefused({{"stream", "true"}, {"response_format", format}}, 400, "stream");
  for (const char* value : {"2", "-0.1", "warm", "nan", "0.5x", "inf"})
    ExpectRefused({{"temperature", value}}, 400, "temperature");
  for (const char* value : {"100", "0", "x", "1e9", "2480"})
    ExpectRefused({{"target_streaming_delay_ms", value}}, 400, "target_streaming_delay_ms");
  ExpectRefused({{"timestamp_granularities[]", "sentence"}}, 400, "timestamp_granularities[]");
  ExpectRefused({{"diarize", "true"}}, 400, "diarize");
  ExpectRefused({{"include[]", "logprobs"}}, 400, "include[]");
  ExpectRefused({{"file_url", "http://x"}}, 400, "file_url", nullptr);
  ExpectRefused({{"file_id", "x"}}, 400, "file_id", nullptr);
  ExpectRefused({{"model", "whisper-1"}}, 404, "model");
}

TEST(TranscriptionForm, AFilePartNeedsAFileName) {
  TranscriptionForm form([](std::string_view) { return Status(); });
  ASSERT_TRUE(form.OnPart({"file", std::nullopt, ""}).ok());
  ASSERT_TRUE(form.OnData("abc").ok());
  const auto result = form.Check(Config(), "");
  EXPECT_THAT(std::get<HttpError>(result).message, HasSubstr("no file name"));
}

TEST(TranscriptionForm, FieldsAreBounded) {
  TranscriptionForm form([](std::string_view) { return Status(); });
  ASSERT_TRUE(form.OnPart({"prompt", std::nullopt, ""}).ok());
  EXPECT_EQ(form.OnData(std::string(2 << 20, 'x')).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace voxrt::server
