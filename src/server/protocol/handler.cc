#include "server/protocol/handler.h"

#include "server/protocol/base64.h"

namespace voxrt::server {

std::optional<std::string> DecodeAudioField(const Json& event) {
  const Json* audio = Member(event, "audio");
  if (audio == nullptr || !audio->is_string()) return std::nullopt;
  return DecodeBase64(audio->get_ref<const std::string&>());
}

Status AudioIntake::Push(std::string_view bytes, const AudioFormat& format, Outbox* out) {
  if (bytes.empty()) return {};
  ever_audio_ = true;
  std::string payload;
  Status status = filter_.Push(bytes, format, &payload);
  Forward(std::move(payload), out);
  return status;
}

void AudioIntake::Forward(std::string bytes, Outbox* out) {
  if (bytes.empty()) return;
  utterance_bytes_ += bytes.size();
  out->commands.push_back({.type = Command::Type::kAudio, .bytes = std::move(bytes), .options = {}});
}

void AudioIntake::EndUtterance(Outbox* out) {
  std::string rest;
  filter_.End(&rest);
  Forward(std::move(rest), out);
  filter_ = WavHeaderFilter();
  utterance_bytes_ = 0;
  out->Do(Command::Type::kEndUtterance);
}

void AudioIntake::Clear(Outbox* out) {
  filter_ = WavHeaderFilter();
  utterance_bytes_ = 0;
  out->Do(Command::Type::kClear);
}

uint16_t FaultCloseCode(Fault fault) {
  switch (fault) {
    case Fault::kEngine:
      return 1011;
    case Fault::kGoingAway:
      return 1001;
    case Fault::kIdle:
    case Fault::kExpired:
      return 1008;
    case Fault::kLag:
    case Fault::kSlowReader:
    case Fault::kBufferFull:
      return 1013;
  }
  return 1011;
}

}  // namespace voxrt::server
