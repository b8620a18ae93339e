// The numbers behind /status as JSON.
#pragma once

#include <string>

#include "server/state.h"

namespace voxrt::server {

std::string StatusJson(const ServerState& state);

}  // namespace voxrt::server
