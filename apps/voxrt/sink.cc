// The five output forms; see the header and docs/cli.md.
#include "sink.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/subtitles.h"

namespace voxrt::app {
namespace {

constexpr int64_t kFrameMs = 80;
constexpr std::string_view kWhiteSpace = " \t\r\n";

// Text as it comes, trimmed at both ends: white space is held back until something follows it.
class TextSink : public Sink {
 public:
  TextSink(std::string prefix, ByteWriter write) : pending_(std::move(prefix)), write_(std::move(write)) {}

  Status Token(const engine::Event& event) override {
    std::string_view piece = event.text;
    if (!began_) piece.remove_prefix(std::min(piece.find_first_not_of(kWhiteSpace), piece.size()));
    if (piece.empty()) return {};
    began_ = true;
    const size_t end = piece.find_last_not_of(kWhiteSpace);
    if (end == std::string_view::npos) {
      pending_.append(piece);
      return {};
    }
    std::string out = std::exchange(pending_, std::string(piece.substr(end + 1)));
    out.append(piece.substr(0, end + 1));
    wrote_ = true;
    return write_(out);
  }
  Status Segments(const std::vector<text::Segment>&) override { return {}; }
  Status Notice(std::string_view, double) override { return {}; }
  Status End(const std::string&, const Summary&) override { return write_(wrote_ ? "\n" : pending_ + "\n"); }
  Status Fail(const Status&) override { return wrote_ ? write_("\n") : Status(); }

 private:
  std::string pending_;
  ByteWriter write_;
  bool began_ = false;
  bool wrote_ = false;
};

class TokensSink : public Sink {
 public:
  TokensSink(std::string prefix, ByteWriter write) : prefix_(std::move(prefix)), write_(std::move(write)) {}

  Status Token(const engine::Event& event) override {
    std::string out = first_ ? prefix_ : " ";
    first_ = false;
    return write_(out + std::to_string(event.token));
  }
  Status Segments(const std::vector<text::Segment>&) override { return {}; }
  Status Notice(std::string_view, double) override { return {}; }
  Status End(const std::string&, const Summary&) override { return write_(first_ ? prefix_ + "\n" : "\n"); }
  Status Fail(const Status&) override { return first_ ? Status() : write_("\n"); }

 private:
  std::string prefix_;
  ByteWriter write_;
  bool first_ = true;
};

class SubtitleSink : public Sink {
 public:
  SubtitleSink(text::SubtitleFormat format, ByteWriter write) : writer_(format), write_(std::move(write)) {}

  Status Token(const engine::Event&) override { return {}; }
  Status Segments(const std::vector<text::Segment>& segments) override {
    std::string out = TakeHeader();
    for (const text::Segment& segment : segments) out += writer_.Add(segment);
    return write_(out);
  }
  Status Notice(std::string_view, double) override { return {}; }
  Status End(const std::string&, const Summary& summary) override {
    std::string out = TakeHeader();
    return write_(out + writer_.Finish(summary.audio_ms));
  }
  Status Fail(const Status&) override { return {}; }

 private:
  std::string TakeHeader() { return std::exchange(began_, true) ? "" : writer_.Header(); }

  text::SubtitleWriter writer_;
  ByteWriter write_;
  bool began_ = false;
};

// One JSON object a line. Deltas carry the raw pieces, so that their concatenation is the transcript; the final text is
// trimmed.
class JsonSink : public Sink {
 public:
  JsonSink(std::string name, ByteWriter write) : name_(std::move(name)), write_(std::move(write)) {}

  Status Token(const engine::Event& event) override {
    if (event.text.empty()) return {};
    return Line(
        "delta",
        {{"text", event.text}, {"start_ms", std::max<int64_t>(event.end_ms - kFrameMs, 0)}, {"end_ms", event.end_ms}});
  }

  Status Segments(const std::vector<text::Segment>& segments) override {
    for (const text::Segment& segment : segments) segments_.push_back(ToJson(segment));
    return {};
  }

  Status Notice(std::string_view notice, double seconds) override {
    return Line("event", {{"event", notice}, {"seconds", seconds}});
  }

  Status End(const std::string& text, const Summary& summary) override {
    VOXRT_RETURN_IF_ERROR(Line("final", {{"text", text::Trim(text)},
                                         {"start_ms", 0},
                                         {"end_ms", summary.audio_ms},
                                         {"segments", std::exchange(segments_, {})}}));
    const double x_realtime =
        summary.wall_seconds > 0 ? static_cast<double>(summary.audio_ms) / 1e3 / summary.wall_seconds : 0.0;
    return Line("usage", {{"audio_ms", summary.audio_ms},
                          {"prompt_tokens", summary.prompt_tokens},
                          {"tokens", summary.tokens},
                          {"wall_ms", static_cast<int64_t>(summary.wall_seconds * 1e3)},
                          {"x_realtime", x_realtime},
                          {"delay_ms", summary.delay_ms},
                          {"backend", summary.backend},
                          {"model", summary.model},
                          {"interrupted", summary.interrupted}});
  }

  Status Fail(const Status& status) override {
    return Line("event", {{"event", "error"}, {"code", StatusCodeName(status.code())}, {"message", status.message()}});
  }

 private:
  Status Line(std::string_view type, base::Json::Object members) const {
    base::Json json = base::Json::MakeObject({{"type", type}, {"file", name_}});
    for (base::Json::Member& member : members) json.AsObject()->push_back(std::move(member));
    return write_(json.Dump() + "\n");
  }

  // The model marks where words end; where they start is estimated, and the field's name says so.
  static base::Json ToJson(const text::Segment& segment) {
    base::Json::Array words;
    for (const text::Word& word : segment.words) {
      words.push_back(
          base::Json::MakeObject({{"text", word.text}, {"start_ms_estimate", word.start_ms}, {"end_ms", word.end_ms}}));
    }
    return base::Json::MakeObject({{"text", segment.text},
                                   {"start_ms", segment.start_ms},
                                   {"end_ms", segment.end_ms},
                                   {"words", std::move(words)}});
  }

  std::string name_;
  ByteWriter write_;
  base::Json::Array segments_;
};

}  // namespace

std::string_view OutputExtension(OutputFormat format) {
  switch (format) {
    case OutputFormat::kText:
      return "txt";
    case OutputFormat::kTokens:
      return "tokens";
    case OutputFormat::kJson:
      return "jsonl";
    case OutputFormat::kSrt:
      return "srt";
    case OutputFormat::kVtt:
      return "vtt";
  }
  return "";
}

std::unique_ptr<Sink> MakeSink(OutputFormat format, std::string name, bool prefix_name, ByteWriter write) {
  std::string prefix = prefix_name ? name + ": " : "";
  switch (format) {
    case OutputFormat::kText:
      return std::make_unique<TextSink>(std::move(prefix), std::move(write));
    case OutputFormat::kTokens:
      return std::make_unique<TokensSink>(std::move(prefix), std::move(write));
    case OutputFormat::kJson:
      return std::make_unique<JsonSink>(std::move(name), std::move(write));
    case OutputFormat::kSrt:
      return std::make_unique<SubtitleSink>(text::SubtitleFormat::kSrt, std::move(write));
    case OutputFormat::kVtt:
      return std::make_unique<SubtitleSink>(text::SubtitleFormat::kVtt, std::move(write));
  }
  return nullptr;
}

}  // namespace voxrt::app
