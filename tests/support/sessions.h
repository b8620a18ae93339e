// Attention as a session sees it: random q/k/v rows fed in calls of any size, several sessions in one call. Used by the
// tests of chunking, rollback, cloning and cache types.
#pragma once

#include <vector>

#include "support/rig.h"

namespace voxrt::test {

// The rows [first, first + rows) of `qkv` are fed to `slot` at these indices.
struct Feed {
  int slot = 0;
  const Matrix* qkv = nullptr;  // all rows of the session, [n, (heads + 2 kv_heads) head_dim]
  int64_t first = 0;
  int64_t rows = 0;
  int64_t offset = 0;  // index of row 0 of `qkv`
};

struct AttentionRun {
  backend::PlanId plan = backend::PlanId::kEncoder;
  int heads = 2;  // kv_heads and head_dim are those of SmallState
  quant::DType activation = quant::DType::kF32;
  bool reserve = true;     // reserves up to the last row of each feed before the call
  bool rotate = false;     // true: phases of the true positions; false: q and k pass the rotation unchanged, exactly
  int64_t spare_rows = 0;  // views and key made for this many more rows; they hold NaN

  int kv_heads() const { return 2; }
  int head_dim() const { return plan == backend::PlanId::kEncoder ? 64 : 128; }
  int64_t qkv_cols() const { return int64_t{heads + 2 * kv_heads()} * head_dim(); }
  backend::KvId kv() const {
    return plan == backend::PlanId::kEncoder ? backend::KvId::kEncoder : backend::KvId::kDecoder;
  }

  // One call; the outputs of the feeds one below the other, [rows, heads * head_dim].
  Matrix Call(Rig& rig, const std::vector<Feed>& feeds) const;
  // A whole session in calls of the given sizes (repeated), begun at `first`.
  Matrix Session(Rig& rig, int slot, const Matrix& qkv, const std::vector<int64_t>& sizes, int64_t first = 0) const;
};

}  // namespace voxrt::test
