#include "server/http/transcription_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// "Hi there." in one second, then "You." in the next.
std::string Transcribe(TranscriptionRequest request, bool whole = true) {
  request.model = "demo";
  TranscriptionWriter writer(std::move(request), "trsc-1", 1790000000);
  std::string out = writer.OnToken("", false, 80);
  out += writer.OnToken("", true, 160);
  out += writer.OnToken(" Hi", false, 240, 1010);
  out += writer.OnToken("", true, 400);
  out += writer.OnToken(" there.", false, 480, 1011);
  out += writer.OnToken("", true, 1200);
  out += writer.OnToken(" You.", false, 1280, 1012);
  return whole ? out + writer.Finish({.duration_ms = 1501, .prompt_tokens = 39, .completion_tokens = 30}) : out;
}

TranscriptionRequest Streamed(SseForm form) {
  TranscriptionRequest request;
  request.sse = form;
  return request;
}

TEST(TranscriptionWriter, JsonIsTheSupersetOfBothApis) {
  const Json body = Json::parse(Transcribe({}));
  EXPECT_EQ(body, Json::parse(R"({"text":"Hi there. You.","model":"demo","language":null,"segments":[],
    "usage":{"type":"duration","seconds":2,"prompt_tokens":39,"completion_tokens":30,"total_tokens":69}})"));
}

TEST(TranscriptionWriter, TextAndSubtitles) {
  TranscriptionRequest request;
  request.format = ResponseFormat::kText;
  EXPECT_EQ(Transcribe(request), "Hi there. You.\n");
  request.format = ResponseFormat::kSrt;
  EXPECT_THAT(Transcribe(request), HasSubstr("1\n00:00:00,"));
  EXPECT_THAT(Transcribe(request), HasSubstr("Hi there.\n\n2\n"));
  request.format = ResponseFormat::kVtt;
  EXPECT_THAT(Transcribe(request), ::testing::StartsWith("WEBVTT\n\n00:00:"));
}

TEST(TranscriptionWriter, VerboseJsonHasNumbersAndWordsOnRequest) {
  TranscriptionRequest request;
  request.format = ResponseFormat::kVerboseJson;
  Json body = Json::parse(Transcribe(request));
  EXPECT_EQ(body["task"], "transcribe");
  EXPECT_EQ(body["duration"], 1.501);
  EXPECT_EQ(body["segments"].size(), 2U);
  EXPECT_EQ(body["segments"][1]["id"], 1);
  EXPECT_EQ(body["segments"][0]["text"], "Hi there.");
  EXPECT_EQ(body["segments"][0]["tokens"], Json::parse("[1010,1011]"));
  EXPECT_EQ(body["segments"][1]["tokens"], Json::parse("[1012]"));
  EXPECT_FALSE(body.contains("words"));
  request.word_times = true;
  body = Json::parse(Transcribe(request));
  EXPECT_EQ(body["words"].size(), 3U);
  EXPECT_EQ(body["words"][2]["word"], "You.");
  EXPECT_TRUE(body["words"][2]["end"].is_number());
}

TEST(TranscriptionWriter, OpenAiStreamHasDataLinesOnly) {
  const std::string out = Transcribe(Streamed(SseForm::kOpenAi));
  EXPECT_THAT(out, ::testing::StartsWith("data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hi\"}\n\n"));
  EXPECT_THAT(out, HasSubstr("\"type\":\"transcript.text.done\",\"text\":\"Hi there. You.\""));
  EXPECT_THAT(out, ::testing::EndsWith("\n\ndata: [DONE]\n\n"));
  EXPECT_THAT(out, Not(HasSubstr("event:")));
}

TEST(TranscriptionWriter, MistralStreamHasNamedEventsAndNoDoneMark) {
  TranscriptionRequest request = Streamed(SseForm::kMistral);
  request.segment_times = true;
  const std::string out = Transcribe(request);
  EXPECT_THAT(
      out, ::testing::StartsWith(
               "event: transcription.text.delta\ndata: {\"type\":\"transcription.text.delta\",\"text\":\"Hi\"}\n\n"));
  EXPECT_THAT(out, HasSubstr("event: transcription.segment\n"));
  EXPECT_THAT(out, HasSubstr("event: transcription.done\n"));
  EXPECT_THAT(out, HasSubstr("\"language\":null"));
  EXPECT_THAT(out, Not(HasSubstr("[DONE]")));
}

TEST(TranscriptionWriter, OldVllmStreamHasOneFinishChunk) {
  TranscriptionRequest request = Streamed(SseForm::kOldVllm);
  request.include_usage = true;
  const std::string out = Transcribe(request);
  EXPECT_THAT(out, HasSubstr("\"object\":\"transcription.chunk\""));
  const size_t first = out.find("finish_reason");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(out.find("finish_reason", first + 1), std::string::npos);
  EXPECT_THAT(out, HasSubstr("\"usage\":{\"prompt_tokens\":39,\"completion_tokens\":30,\"total_tokens\":69}"));
}

TEST(TranscriptionWriter, StreamedAndWholeTextAgree) {
  std::string joined;
  const std::string out = Transcribe(Streamed(SseForm::kOpenAi), false);
  for (size_t at = 0; (at = out.find("data: ", at)) != std::string::npos; ++at) {
    joined += Json::parse(out.substr(at + 6, out.find('\n', at) - at - 6))["delta"].get<std::string>();
  }
  EXPECT_EQ(joined, "Hi there. You.");
}

TEST(TranscriptionWriter, NothingSaidIsEmptyText) {
  TranscriptionWriter writer({}, "x", 0);
  EXPECT_EQ(Json::parse(writer.Finish({}))["text"], "");
}

TEST(TranscriptionWriter, ErrorsInAStreamHaveNoEventName) {
  const std::string out = TranscriptionWriter::StreamError({500, "no", "", ""});
  EXPECT_EQ(out, "data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n");
}

}  // namespace
}  // namespace voxrt::server
