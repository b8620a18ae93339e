// GET /v1/models: one card that OpenAI's, vLLM's and Mistral's clients all accept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/protocol/json.h"

namespace voxrt::server {

Json ModelCard(const std::string& id, const std::string& root, int64_t created_unix_s);
Json ModelList(const std::vector<std::string>& ids, const std::string& root, int64_t created_unix_s);

}  // namespace voxrt::server
