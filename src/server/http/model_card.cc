#include "server/http/model_card.h"

namespace voxrt::server {
namespace {
// Positions roll (there is no context wall); clients want a number: what Mistral's own configuration states.
constexpr int64_t kContextLength = 131072;
}  // namespace

Json ModelCard(const std::string& id, const std::string& root, int64_t created_unix_s) {
  return {{"id", id},
          {"object", "model"},
          {"created", created_unix_s},
          {"owned_by", "voxrt"},
          {"root", root},
          {"parent", nullptr},
          {"max_model_len", kContextLength},
          {"permission", Json::array()},
          {"type", "base"},
          {"name", id},
          {"description", nullptr},
          {"aliases", Json::array()},
          {"max_context_length", kContextLength},
          {"deprecation", nullptr},
          {"default_model_temperature", 0},
          {"capabilities",
           {{"completion_chat", false},
            {"function_calling", false},
            {"completion_fim", false},
            {"fine_tuning", false},
            {"vision", false},
            {"ocr", false},
            {"classification", false},
            {"moderation", false},
            {"audio", true},
            {"audio_transcription", true},
            {"audio_transcription_realtime", true}}}};
}

Json ModelList(const std::vector<std::string>& ids, const std::string& root, int64_t created_unix_s) {
  Json cards = Json::array();
  for (const std::string& id : ids) cards.push_back(ModelCard(id, root, created_unix_s));
  return {{"object", "list"}, {"data", cards}};
}

}  // namespace voxrt::server
