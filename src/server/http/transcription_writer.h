// What POST /v1/audio/transcriptions answers: whole bodies (json, text, srt, vtt, verbose_json) and event streams in
// three forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/http_error.h"
#include "server/http/transcription_form.h"
#include "server/protocol/json.h"
#include "text/transcript.h"

namespace voxrt::server {

struct TranscriptionStats {
  int64_t duration_ms = 0;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

class TranscriptionWriter {
 public:
  // `id` and `created` appear in the old vLLM form.
  TranscriptionWriter(TranscriptionRequest request, std::string id, int64_t created_unix_s);

  const char* content_type() const;
  bool streams() const { return request_.sse != SseForm::kNone; }
  // White space may be sent before the body to keep the connection alive.
  bool padding_allowed() const {
    return request_.format == ResponseFormat::kJson || request_.format == ResponseFormat::kVerboseJson;
  }

  // One generated token; returns what to send now (only when streaming). `id` < 0: none, or a token that carries no
  // text.
  std::string OnToken(std::string_view text, bool word_mark, int64_t end_ms, int32_t id = -1);
  // The rest, or the whole body.
  std::string Finish(const TranscriptionStats& stats);
  // An error after the headers of a stream were sent: without an event name, so that every SDK raises it.
  static std::string StreamError(const HttpError& error) { return "data: " + error.Body() + "\n\n"; }

 private:
  std::string Delta(std::string_view text);
  std::string SegmentEvents();
  std::string OldVllmChunk(const Json& choices, bool with_usage) const;
  std::string FinishStream(const TranscriptionStats& stats);
  std::string Subtitles(const TranscriptionStats& stats) const;
  Json MistralSegments() const;
  Json JsonBody(const TranscriptionStats& stats) const;
  Json VerboseBody(const TranscriptionStats& stats) const;
  Json SegmentTokens(size_t* next, size_t end) const;
  Json TokenUsage(const TranscriptionStats& stats) const;

  TranscriptionRequest request_;
  std::string id_;
  int64_t created_;
  text::TranscriptBuilder builder_;
  std::vector<text::Segment> segments_;
  std::string text_;  // trimmed at the start
  int64_t tokens_ = 0;
  // For verbose_json: text tokens, each with the bytes of text that came before it, white space not counted.
  std::vector<std::pair<int32_t, size_t>> ids_;
  size_t text_bytes_ = 0;
};

// Content type for a format.
const char* ContentType(ResponseFormat format);

}  // namespace voxrt::server
