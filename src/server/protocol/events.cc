#include "server/protocol/events.h"

#include <algorithm>

#include "server/protocol/json.h"

namespace voxrt::server {

const char* const kDelayRule = "a multiple of 80 from 80 to 2400 (milliseconds)";

std::string Serialize(const Frame& frame) {
  return frame.is_delta() ? frame.text + JsonEscape(frame.delta) + frame.suffix : frame.text;
}

bool SessionConfig::Serves(const std::string& model) const {
  return accept_any_model || std::find(models.begin(), models.end(), model) != models.end();
}

bool ValidDelayMs(int64_t delay_ms) { return delay_ms >= 80 && delay_ms <= 2400 && delay_ms % 80 == 0; }

}  // namespace voxrt::server
