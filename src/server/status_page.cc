#include "server/status_page.h"

#include "server/protocol/json.h"

namespace voxrt::server {

std::string StatusJson(const ServerState& state) {
  const MetricsSnapshot snapshot = state.Snapshot();
  const std::string problem = state.HealthProblem();
  return Dump({{"healthy", problem.empty()},
               {"problem", problem},
               {"draining", state.draining.load()},
               {"sessions", snapshot.sessions},
               {"places", snapshot.places},
               {"uploads_waiting", snapshot.uploads_waiting},
               {"connections", snapshot.connections},
               {"max_lag_s", snapshot.max_lag_s},
               {"buffered_audio_bytes", snapshot.backlog_bytes},
               {"resident_bytes", ResidentBytes()},
               {"session_state_bytes", snapshot.info.session_bytes_now},
               {"cpu_seconds", ProcessCpuSeconds()},
               {"live_ticks", snapshot.engine.live_ticks},
               {"live_steps", snapshot.engine.live_batches},
               {"live_seconds", snapshot.engine.live_seconds},
               {"bulk_ticks", snapshot.engine.bulk_ticks},
               {"model", state.options.model_names.front()},
               {"backend", snapshot.info.backend},
               {"device", snapshot.info.device},
               {"started", state.created_unix_s}});
}

}  // namespace voxrt::server
