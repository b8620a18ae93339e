// What the dialect tests share: a protocol with a small configuration, and short ways to say what came out.
#pragma once

#include <string>
#include <vector>

#include "server/protocol/base64.h"
#include "server/protocol/json.h"
#include "server/protocol/realtime.h"

namespace voxrt::server::test {

inline SessionConfig Config() {
  SessionConfig config;
  config.session_id = "sess-0a";
  config.created_unix_s = 1790000000;
  config.models = {"demo", "other/name"};
  return config;
}

inline std::vector<Json> Messages(const Outbox& out) {
  std::vector<Json> messages;
  for (const Frame& frame : out.frames) messages.push_back(Json::parse(Serialize(frame)));
  return messages;
}

inline std::vector<std::string> Types(const Outbox& out) {
  std::vector<std::string> types;
  for (const Json& message : Messages(out)) types.push_back(message.at("type"));
  return types;
}

// "C16000@480 S A4 E X": configure, start, audio bytes, end of utterance, clear.
inline std::string Commands(const Outbox& out) {
  std::string text;
  for (const Command& command : out.commands) {
    if (!text.empty()) text += ' ';
    switch (command.type) {
      case Command::Type::kConfigure:
        text += 'C' + std::to_string(command.options.format.rate) + '@' + std::to_string(command.options.delay_ms);
        break;
      case Command::Type::kStart:
        text += 'S';
        break;
      case Command::Type::kAudio:
        text += 'A' + std::to_string(command.bytes.size());
        break;
      case Command::Type::kEndUtterance:
        text += 'E';
        break;
      case Command::Type::kClear:
        text += 'X';
        break;
    }
  }
  return text;
}

class Client {
 public:
  explicit Client(RealtimeHints hints = {}, SessionConfig config = Config())
      : protocol(std::move(config), std::move(hints)) {
    protocol.Open(&opening);
  }
  Outbox Text(std::string_view message) {
    Outbox out;
    protocol.OnText(message, &out);
    return out;
  }
  Outbox Send(const Json& event) { return Text(event.dump()); }
  Outbox Binary(std::string_view bytes) {
    Outbox out;
    protocol.OnBinary(bytes, &out);
    return out;
  }
  Outbox Stream(const StreamEvent& event) {
    Outbox out;
    protocol.OnStream(event, &out);
    return out;
  }
  Outbox Word(int64_t utterance, std::string text) {
    StreamEvent event;
    event.utterance = utterance;
    event.text = std::move(text);
    return Stream(event);
  }
  Outbox Done(int64_t utterance, int64_t samples = 16000) {
    StreamEvent event;
    event.type = StreamEvent::Type::kDone;
    event.utterance = utterance;
    event.samples = samples;
    event.prompt_tokens = samples == 0 ? 0 : 39;
    event.completion_tokens = samples == 0 ? 0 : 24;
    return Stream(event);
  }
  Outbox Fail(Fault fault, const std::string& message = "what happened") {
    Outbox out;
    protocol.OnFault(fault, message, &out);
    return out;
  }
  Outbox EndAudio() {
    Outbox out;
    protocol.EndAudio("time over", &out);
    return out;
  }

  Outbox opening;
  RealtimeProtocol protocol;
};

inline Json Append(const char* type, std::string_view bytes) {
  return {{"type", type}, {"audio", EncodeBase64(bytes)}};
}

}  // namespace voxrt::server::test
