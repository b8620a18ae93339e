// Sinks: the forms in which a transcript is written while it is made: text, tokens, JSON lines, SRT, WebVTT.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "text/transcript.h"

namespace voxrt::app {

enum class OutputFormat : uint8_t { kText, kTokens, kJson, kSrt, kVtt };
// File name ending without the dot: "txt", "tokens", "jsonl", "srt", "vtt".
std::string_view OutputExtension(OutputFormat format);

// Where the bytes of a sink go. Each call is one write: whole lines or pieces of text as they become known.
using ByteWriter = std::function<Status(std::string_view bytes)>;

struct Summary {
  std::string model;  // path
  std::string backend;
  int delay_ms = 0;
  int64_t audio_ms = 0;
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;
  double wall_seconds = 0.0;
  bool interrupted = false;
};

class Sink {
 public:
  virtual ~Sink() = default;
  // One generated token, pads included.
  virtual Status Token(const engine::Event& event) = 0;
  // Segments that became complete.
  virtual Status Segments(const std::vector<text::Segment>& segments) = 0;
  // Something worth telling that is not text: "blank_rut", "input_overflow".
  virtual Status Notice(std::string_view name, double seconds) = 0;
  // The end; `text` is the whole transcript, untrimmed.
  virtual Status End(const std::string& text, const Summary& summary) = 0;
  // The input failed, possibly in mid-transcript.
  virtual Status Fail(const Status& status) = 0;
};

// `name` is the input's; `prefix_name` puts "NAME: " before text and tokens (several inputs on one output).
std::unique_ptr<Sink> MakeSink(OutputFormat format, std::string name, bool prefix_name, ByteWriter write);

}  // namespace voxrt::app
