// The vocabulary between protocol code and transport: frames to send, commands for the stream driver, what the driver
// reports back. Protocol code is a pure function over these: no socket, no clock, no engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/protocol/audio_format.h"

namespace voxrt::server {

// One text message. A delta is kept in three parts, so that a slow reader's pending deltas can be merged before they
// are written.
struct Frame {
  std::string text;       // whole message; of a delta, everything before the escaped text
  std::string delta;      // plain text, not escaped yet
  std::string suffix;     // of a delta: everything after the text
  std::string merge_key;  // deltas with equal keys may be joined; empty = no delta
  bool is_delta() const { return !merge_key.empty(); }
};

// The message as it goes on the wire.
std::string Serialize(const Frame& frame);

struct VadOptions {
  bool enabled = false;
  double threshold = 0.5;  // 0..1, higher = louder speech needed
  int prefix_padding_ms = 300;
  int silence_duration_ms = 500;
  bool operator==(const VadOptions&) const = default;
};

struct StreamOptions {
  AudioFormat format;
  int delay_ms = 480;
  VadOptions vad;
  bool waits_for_start = false;  // utterances are transcribed only after their kStart (vLLM)
};

struct Command {
  enum class Type : uint8_t {
    kConfigure,     // `options` hold for audio that follows
    kStart,         // allows one more utterance (only with waits_for_start)
    kAudio,         // `bytes` in the configured format
    kEndUtterance,  // everything before belongs to the current utterance; a new one follows
    kClear,         // drop the audio of the utterance that has not been ended, and its text
  };
  Type type;
  std::string bytes;
  StreamOptions options;
};

struct Close {
  uint16_t code = 1000;
  std::string reason;
};

struct Outbox {
  std::vector<Frame> frames;
  std::vector<Command> commands;
  std::optional<Close> close;                               // after the frames
  std::vector<std::pair<std::string, std::string>> errors;  // (dialect, code) of each error sent: for metrics

  void Send(std::string text) {
    frames.push_back({.text = std::move(text), .delta = {}, .suffix = {}, .merge_key = {}});
  }
  void Do(Command::Type type) { commands.push_back({.type = type, .bytes = {}, .options = {}}); }
};

// What the stream driver reports. Utterances are counted from 0 in the order of their ends.
struct StreamEvent {
  enum class Type : uint8_t {
    kText,           // `text`, may be empty: one generated token
    kDone,           // utterance finished
    kBoundary,       // the end of the utterance went by in the audio (by command or by voice activity)
    kSpeechStarted,  // `audio_ms`: as everywhere since the session's first sample
    kSpeechStopped,
    kWarning,  // `text` = code, `message`
  };
  Type type = Type::kText;
  int64_t utterance = 0;
  std::string text;
  std::string message;
  int64_t audio_ms = 0;           // kText: end of the token's frame
  bool word_mark = false;         // kText
  int64_t samples = 0;            // kDone: at 16 kHz
  int64_t prompt_tokens = 0;      // kDone
  int64_t completion_tokens = 0;  // kDone
};

// Why a session ends or complains without the client's protocol being at fault.
enum class Fault : uint8_t { kEngine, kIdle, kLag, kSlowReader, kBufferFull, kExpired, kGoingAway };

struct SessionConfig {
  std::string session_id;  // "sess-<hex>"
  int64_t created_unix_s = 0;
  std::vector<std::string> models;  // served names, the first is the default
  bool accept_any_model = false;
  int default_delay_ms = 480;
  std::optional<int64_t> expires_at_unix_s;
  bool vllm_empty_deltas = false;
  bool openai_warnings = true;
  bool other_warnings = false;
  int64_t max_unbound_bytes = 128LL << 20;  // audio before the dialect is known

  bool Serves(const std::string& model) const;
  const std::string& default_model() const { return models.front(); }
};

// "delay must be a multiple of 80 from 80 to 2400".
bool ValidDelayMs(int64_t delay_ms);
extern const char* const kDelayRule;

}  // namespace voxrt::server
