// DialectHandler: one dialect of the realtime protocols, bound to one connection. Pure: everything it wants goes into
// the Outbox.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/protocol/audio_format.h"
#include "server/protocol/events.h"
#include "server/protocol/json.h"

namespace voxrt::server {

// A client's mistake, before it is worded in a dialect.
struct ProtocolError {
  enum class Kind : uint8_t {
    kInvalidJson,
    kInvalidEvent,  // no object, no type, binary frame, missing field
    kUnknownType,
    kInvalidAudio,
    kModelNotFound,
    kModelNotValidated,
    kInvalidValue,  // `param` = path of the field
    kUnsupported,
    kCommitEmpty,
    kBufferFull,
  };
  Kind kind;
  std::string message;
  std::string param;
};

class DialectHandler {
 public:
  virtual ~DialectHandler() = default;
  virtual const char* name() const = 0;
  // Once, before the first event: announces the dialect's default audio format to the driver.
  virtual void OnBind(Outbox* out) = 0;
  virtual void OnEvent(const std::string& type, const Json& event, Outbox* out) = 0;
  // Decoded bytes of an append (also of those that came before the dialect was known).
  virtual void OnAudio(std::string_view bytes, Outbox* out) = 0;
  virtual void OnStream(const StreamEvent& event, Outbox* out) = 0;
  virtual void OnError(const ProtocolError& error, Outbox* out) = 0;
  virtual void OnFault(Fault fault, const std::string& message, Outbox* out) = 0;
  // The server ends what the client has begun, as if the client had ended its audio; nothing follows from the client.
  virtual void EndAudio(Outbox* out) = 0;
  // Nothing is being transcribed and no answer is owed: a drain may close the connection.
  virtual bool idle() const = 0;
};

std::unique_ptr<DialectHandler> MakeVllmHandler(const SessionConfig& config);
// `beta`: flat session objects and the beta names of item events.
std::unique_ptr<DialectHandler> MakeOpenAiHandler(const SessionConfig& config, bool beta);
std::unique_ptr<DialectHandler> MakeMistralHandler(const SessionConfig& config, const std::string& model);

// Bytes of the `audio` field, or nullopt when it is no string of strict base64.
std::optional<std::string> DecodeAudioField(const Json& event);

// Audio of one session on its way to the driver: header filter, and how much the current utterance has.
class AudioIntake {
 public:
  Status Push(std::string_view bytes, const AudioFormat& format, Outbox* out);
  // Ends the utterance in the driver; the next one begins.
  void EndUtterance(Outbox* out);
  void Clear(Outbox* out);
  bool HasSample(const AudioFormat& format) const { return utterance_bytes_ >= BytesPerSample(format.encoding); }
  bool ever_audio() const { return ever_audio_; }

 private:
  void Forward(std::string bytes, Outbox* out);

  WavHeaderFilter filter_;
  size_t utterance_bytes_ = 0;
  bool ever_audio_ = false;
};

uint16_t FaultCloseCode(Fault fault);

}  // namespace voxrt::server
