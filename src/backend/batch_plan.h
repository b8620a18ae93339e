// BatchPlan: which rows of a call belong to which session, their positions and tokens. Plain arrays built on the host
// by the scheduler, copied by Stream::SetPlan, identical for all backends. Every value that changes from tick to tick
// is in here.
#pragma once

#include <cstdint>
#include <vector>

namespace voxrt::backend {

// The rows of one session in a call: consecutive rows at consecutive positions.
struct PlanGroup {
  int32_t slot = 0;       // session state slot, 0 <= slot < SessionStateSpec::max_sessions
  int32_t row_begin = 0;  // first row in the call
  int32_t row_count = 0;  // >= 1
  int64_t first_index =
      0;  // index of the first row in the session's sequence (0 at reset); cache slot = index mod capacity.
          // Rows of earlier calls with index in [max(0, i - window + 1), first_index) are in the cache.
};

// A call has two plans: one over encoder rows (50 Hz; 4 a tick) and one over decoder rows (12.5 Hz; 1 a tick).
enum class PlanId : uint8_t { kEncoder = 0, kDecoder = 1 };

struct BatchPlan {
  std::vector<PlanGroup> groups;  // by rising row_begin, without gaps: rows 0..rows-1 each belong to exactly one group;
                                  // a slot appears in at most one group
  int32_t rows = 0;

  // Rotary phases of each row, cos and sin of fp64 angles rounded to fp32 (docs/model.md 8.2): [rows, head_dim / 2].
  std::vector<float> rope_cos;
  std::vector<float> rope_sin;

  // Decoder only.
  std::vector<int32_t> token;      // [rows] id to embed; kDeviceToken = the slot's last arg-max, still on the device
  std::vector<int32_t> audio_row;  // [rows] row of EmbedArgs::audio to add
  std::vector<int32_t> delay_row;  // [rows] row of the adaptive scale tables
  std::vector<int32_t> head_rows;  // rows whose logits are wanted, rising; Head writes result i for head_rows[i]

  static constexpr int32_t kDeviceToken = -1;
};

}  // namespace voxrt::backend
