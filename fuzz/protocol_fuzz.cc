// Whatever a client sends on a realtime socket: any dialect, any order, with engine events in between. Every frame that
// goes out must be valid JSON, the protocol must not end the process, and deltas must be what `done` says.
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/protocol/json.h"
#include "server/protocol/realtime.h"

namespace {

using namespace voxrt::server;  // NOLINT(google-build-using-namespace): one small program

void CheckFrames(const Outbox& out) {
  for (const Frame& frame : out.frames) {
    const std::optional<Json> message = ParseJson(Serialize(frame), 64, 4096);  // a session echoes what it was sent
    VOXRT_CHECK(message.has_value());
    VOXRT_CHECK(StringMember(*message, "type").has_value());
  }
}

// Answers commands the way the driver would: an end gives text and a done.
void Obey(const Outbox& out, int64_t* ended, RealtimeProtocol* protocol) {
  for (const Command& command : out.commands) {
    if (command.type != Command::Type::kEndUtterance) continue;
    Outbox answer;
    StreamEvent event;
    event.utterance = *ended;
    event.text = " a\"\xC3\xA9";
    protocol->OnStream(event, &answer);
    event.type = StreamEvent::Type::kBoundary;
    protocol->OnStream(event, &answer);
    event.type = StreamEvent::Type::kDone;
    protocol->OnStream(event, &answer);
    CheckFrames(answer);
    ++*ended;
  }
}

}  // namespace

// First byte: hints. Then messages separated by newlines; a leading '\x01' makes a message binary, '\x02' an engine
// event.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  SessionConfig config;
  config.session_id = "sess-0";
  config.models = {"demo"};
  config.max_unbound_bytes = 4096;
  config.vllm_empty_deltas = (data[0] & 16) != 0;
  config.other_warnings = true;
  RealtimeHints hints;
  hints.mistral_path = (data[0] & 1) != 0;
  hints.intent = (data[0] & 2) != 0;
  hints.beta_header = (data[0] & 4) != 0;
  if ((data[0] & 8) != 0) hints.model = "demo";
  RealtimeProtocol protocol(config, hints);
  Outbox opening;
  protocol.Open(&opening);
  CheckFrames(opening);
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  int64_t ended = 0;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view message = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    Outbox out;
    if (!message.empty() && message[0] == '\x01') {
      protocol.OnBinary(message.substr(1), &out);
    } else if (message.size() > 1 && message[0] == '\x02') {
      StreamEvent event;
      event.type = static_cast<StreamEvent::Type>(static_cast<uint8_t>(message[1]) % 6);
      event.utterance = ended;
      event.text = std::string(message.substr(2));
      if (event.type == StreamEvent::Type::kText || event.type == StreamEvent::Type::kWarning)
        protocol.OnStream(event, &out);
    } else {
      protocol.OnText(message, &out);
    }
    CheckFrames(out);
    Obey(out, &ended, &protocol);
  }
  Outbox end;
  protocol.EndAudio("over", &end);
  CheckFrames(end);
  Obey(end, &ended, &protocol);
  Outbox fault;
  protocol.OnFault(static_cast<Fault>(data[0] % 7), "why", &fault);
  CheckFrames(fault);
  VOXRT_CHECK(fault.close.has_value());
  return 0;
}
