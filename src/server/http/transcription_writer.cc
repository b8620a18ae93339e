#include "server/http/transcription_writer.h"

#include <algorithm>

#include "text/subtitles.h"

namespace voxrt::server {
namespace {

double Seconds(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

std::string Event(const Json& data) { return "data: " + Dump(data) + "\n\n"; }
std::string NamedEvent(const char* name, const Json& data) {
  return std::string("event: ") + name + "\n" + Event(data);
}

Json MistralSegment(const text::Segment& segment) {
  return {{"type", "transcription_segment"},
          {"text", segment.text},
          {"start", Seconds(segment.start_ms)},
          {"end", Seconds(segment.end_ms)}};
}

// Bytes that are no ASCII white space: segments are trimmed, so only these can be counted in both.
size_t InkBytes(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c != ' ' && (c < 9 || c > 13); }));
}

}  // namespace

const char* ContentType(ResponseFormat format) {
  switch (format) {
    case ResponseFormat::kJson:
    case ResponseFormat::kVerboseJson:
      return "application/json";
    case ResponseFormat::kVtt:
      return "text/vtt; charset=utf-8";
    case ResponseFormat::kText:
    case ResponseFormat::kSrt:
      return "text/plain; charset=utf-8";
  }
  return "application/json";
}

TranscriptionWriter::TranscriptionWriter(TranscriptionRequest request, std::string id, int64_t created_unix_s)
    : request_(std::move(request)), id_(std::move(id)), created_(created_unix_s) {}

const char* TranscriptionWriter::content_type() const {
  return streams() ? "text/event-stream" : ContentType(request_.format);
}

std::string TranscriptionWriter::OnToken(std::string_view text, bool word_mark, int64_t end_ms, int32_t id) {
  ++tokens_;
  if (request_.format == ResponseFormat::kVerboseJson) {
    if (id >= 0) ids_.emplace_back(id, text_bytes_);
    text_bytes_ += InkBytes(text);
  }
  builder_.Add(text, word_mark, end_ms);
  if (text_.empty()) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\n' || text.front() == '\t'))
      text.remove_prefix(1);
  }
  text_ += text;
  if (!streams()) return {};
  std::string out = text.empty() ? std::string() : Delta(text);
  return out + SegmentEvents();
}

std::string TranscriptionWriter::Delta(std::string_view text) {
  const std::string delta(text);
  switch (request_.sse) {
    case SseForm::kMistral:
      return NamedEvent("transcription.text.delta", {{"type", "transcription.text.delta"}, {"text", delta}});
    case SseForm::kOldVllm: {
      const Json choice = {{"delta", {{"content", delta}}}};
      return OldVllmChunk(Json::array({choice}), request_.continuous_usage);
    }
    default:
      return Event({{"type", "transcript.text.delta"}, {"delta", delta}});
  }
}

// Segments that became complete, as events of Mistral's form when asked for.
std::string TranscriptionWriter::SegmentEvents() {
  std::string out;
  for (text::Segment& segment : builder_.TakeSegments()) {
    if (request_.sse == SseForm::kMistral && request_.segment_times) {
      out += NamedEvent("transcription.segment", {{"type", "transcription.segment"},
                                                  {"text", segment.text},
                                                  {"start", Seconds(segment.start_ms)},
                                                  {"end", Seconds(segment.end_ms)}});
    }
    segments_.push_back(std::move(segment));
  }
  return out;
}

std::string TranscriptionWriter::OldVllmChunk(const Json& choices, bool with_usage) const {
  Json chunk = {{"id", id_},
                {"object", "transcription.chunk"},
                {"created", created_},
                {"model", request_.model},
                {"choices", choices}};
  if (with_usage) chunk["usage"] = {{"prompt_tokens", 0}, {"completion_tokens", tokens_}, {"total_tokens", tokens_}};
  return Event(chunk);
}

std::string TranscriptionWriter::Finish(const TranscriptionStats& stats) {
  builder_.Finish(stats.duration_ms);
  const std::string last_segments = SegmentEvents();
  if (streams()) return last_segments + FinishStream(stats);
  switch (request_.format) {
    case ResponseFormat::kText:
      return text_ + "\n";
    case ResponseFormat::kSrt:
    case ResponseFormat::kVtt:
      return Subtitles(stats);
    case ResponseFormat::kVerboseJson:
      return Dump(VerboseBody(stats));
    case ResponseFormat::kJson:
      break;
  }
  return Dump(JsonBody(stats));
}

Json TranscriptionWriter::TokenUsage(const TranscriptionStats& stats) const {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"completion_tokens", stats.completion_tokens},
          {"total_tokens", stats.prompt_tokens + stats.completion_tokens}};
}

std::string TranscriptionWriter::FinishStream(const TranscriptionStats& stats) {
  const int64_t total = stats.prompt_tokens + stats.completion_tokens;
  if (request_.sse == SseForm::kMistral) {
    Json usage = TokenUsage(stats);
    usage["prompt_audio_seconds"] = (stats.duration_ms + 999) / 1000;
    return NamedEvent("transcription.done", {{"type", "transcription.done"},
                                             {"model", request_.model},
                                             {"text", text_},
                                             {"language", nullptr},
                                             {"segments", MistralSegments()},
                                             {"usage", usage}});
  }
  if (request_.sse == SseForm::kOldVllm) {
    const Json last = {{"delta", {{"content", ""}}}, {"finish_reason", "stop"}};
    std::string out = OldVllmChunk(Json::array({last}), request_.continuous_usage);
    if (request_.include_usage) {
      const Json chunk = {{"id", id_},
                          {"object", "transcription.chunk"},
                          {"created", created_},
                          {"model", request_.model},
                          {"choices", Json::array()},
                          {"usage", TokenUsage(stats)}};
      out += Event(chunk);
    }
    return out + "data: [DONE]\n\n";
  }
  const Json usage = {{"type", "tokens"},
                      {"input_tokens", stats.prompt_tokens},
                      {"output_tokens", stats.completion_tokens},
                      {"total_tokens", total},
                      {"input_token_details", {{"audio_tokens", stats.prompt_tokens}, {"text_tokens", 0}}}};
  return Event({{"type", "transcript.text.done"}, {"text", text_}, {"usage", usage}}) + "data: [DONE]\n\n";
}

Json TranscriptionWriter::MistralSegments() const {
  Json list = Json::array();
  if (request_.word_times) {
    for (const text::Segment& segment : segments_) {
      for (const text::Word& word : segment.words)
        list.push_back(MistralSegment({word.text, word.start_ms, word.end_ms, {}}));
    }
  } else if (request_.segment_times) {
    for (const text::Segment& segment : segments_) list.push_back(MistralSegment(segment));
  }
  return list;
}

Json TranscriptionWriter::JsonBody(const TranscriptionStats& stats) const {
  Json usage = {{"type", "duration"}, {"seconds", (stats.duration_ms + 999) / 1000}};
  usage.update(TokenUsage(stats));
  if (request_.mistral) usage["prompt_audio_seconds"] = (stats.duration_ms + 999) / 1000;
  return {{"text", text_},
          {"model", request_.model},
          {"language", nullptr},
          {"segments", MistralSegments()},
          {"usage", usage}};
}

// Ids of the tokens from `*next` on whose text begins before byte `end`.
Json TranscriptionWriter::SegmentTokens(size_t* next, size_t end) const {
  Json list = Json::array();
  for (; *next < ids_.size() && ids_[*next].second < end; ++*next) list.push_back(ids_[*next].first);
  return list;
}

Json TranscriptionWriter::VerboseBody(const TranscriptionStats& stats) const {
  Json segments = Json::array(), words = Json::array();
  size_t next_id = 0, end = 0;
  for (const text::Segment& segment : segments_) {
    end += InkBytes(segment.text);
    segments.push_back({{"id", segments.size()},
                        {"seek", segment.start_ms / 10},
                        {"start", Seconds(segment.start_ms)},
                        {"end", Seconds(segment.end_ms)},
                        {"text", segment.text},
                        {"tokens", SegmentTokens(&next_id, end)},
                        {"temperature", request_.temperature},
                        {"avg_logprob", nullptr},
                        {"compression_ratio", nullptr},
                        {"no_speech_prob", nullptr}});
    for (const text::Word& word : segment.words) {
      words.push_back({{"word", word.text}, {"start", Seconds(word.start_ms)}, {"end", Seconds(word.end_ms)}});
    }
  }
  Json body = {{"task", "transcribe"},
               {"language", request_.language.empty() ? Json(nullptr) : Json(request_.language)},
               {"duration", Seconds(stats.duration_ms)},
               {"text", text_},
               {"segments", segments}};
  if (request_.word_times) body["words"] = words;
  body["usage"] = {{"type", "duration"}, {"seconds", (stats.duration_ms + 999) / 1000}};
  return body;
}

std::string TranscriptionWriter::Subtitles(const TranscriptionStats& stats) const {
  text::SubtitleWriter writer(request_.format == ResponseFormat::kSrt ? text::SubtitleFormat::kSrt
                                                                      : text::SubtitleFormat::kVtt);
  std::string out = writer.Header();
  for (const text::Segment& segment : segments_) out += writer.Add(segment);
  return out + writer.Finish(stats.duration_ms);
}

}  // namespace voxrt::server
