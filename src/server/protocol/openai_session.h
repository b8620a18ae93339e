// The settings of an OpenAI transcription session: read from GA (nested) and beta (flat) updates, printed in either
// form.
#pragma once

#include <optional>
#include <string>

#include "server/protocol/events.h"
#include "server/protocol/handler.h"
#include "server/protocol/json.h"

namespace voxrt::server {

struct OpenAiSession {
  StreamOptions stream;
  std::string model;
  Json transcription = Json::object();  // echoed: language, languages, prompt, keywords
  Json noise_reduction = nullptr;
  Json turn_detection = nullptr;
  Json include = Json::array();
};

// Merge the present fields of `session` into `settings`, `null` clears. On error `settings` is unspecified and the
// error names the path.
std::optional<ProtocolError> ParseGaSession(const Json& session, const SessionConfig& config, OpenAiSession* settings);
std::optional<ProtocolError> ParseBetaSession(const Json& session, const SessionConfig& config,
                                              OpenAiSession* settings);
// Has the flat fields of the beta form.
bool IsBetaSession(const Json& session);

Json GaSessionObject(const OpenAiSession& settings, const SessionConfig& config);
Json BetaSessionObject(const OpenAiSession& settings, const SessionConfig& config);

// "minimal" and so on, nullptr when the delay has no name.
const char* DelayName(int delay_ms);

}  // namespace voxrt::server
