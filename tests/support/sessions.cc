// Implementation of attention sessions.
#include "support/sessions.h"

#include <algorithm>

#include "base/check.h"

namespace voxrt::test {

Matrix AttentionRun::Call(Rig& rig, const std::vector<Feed>& feeds) const {
  std::vector<GroupSpec> groups;
  int64_t rows = 0;
  for (const Feed& feed : feeds) {
    groups.push_back({feed.slot, static_cast<int>(feed.rows), feed.offset + feed.first});
    rows += feed.rows;
    if (reserve) VOXRT_CHECK(rig.state().Reserve(feed.slot, kv(), feed.offset + feed.first + feed.rows).ok());
  }
  Matrix qkv(rows, qkv_cols());
  auto at = qkv.values.begin();
  for (const Feed& feed : feeds) {
    at = std::copy_n(feed.qkv->values.begin() + feed.first * qkv_cols(), feed.rows * qkv_cols(), at);
  }
  backend::BatchPlan batch = MakePlan(groups, head_dim());
  if (!rotate) {
    std::fill(batch.rope_cos.begin(), batch.rope_cos.end(), 1.0f);
    std::fill(batch.rope_sin.begin(), batch.rope_sin.end(), 0.0f);
  }
  const backend::View whole = rig.Poisoned(rows + spare_rows, qkv_cols(), activation, 8);
  const backend::View filled = rig.Put(qkv, activation);
  const backend::View out = rig.Poisoned(rows + spare_rows, int64_t{heads} * head_dim(), activation, 8);
  const bool encoder = plan == backend::PlanId::kEncoder;
  const backend::AttentionShape shape{heads, kv_heads(), head_dim()};
  rig.RunPadded(rows + spare_rows, encoder ? &batch : nullptr, encoder ? nullptr : &batch, [&](backend::Stream& s) {
    s.Copy({.x = filled, .out = whole.Rows(0, rows)});
    s.RopeStoreKv({.plan = plan, .layer = 0, .shape = shape, .qkv = whole});
    s.WindowAttention({.plan = plan, .layer = 0, .shape = shape, .qkv = whole, .out = out});
  });
  return rig.Get(out.Rows(0, rows));
}

Matrix AttentionRun::Session(Rig& rig, int slot, const Matrix& qkv, const std::vector<int64_t>& sizes,
                             int64_t first) const {
  Matrix all(qkv.rows - first, int64_t{heads} * head_dim());
  auto at = all.values.begin();
  size_t call = 0;
  while (first < qkv.rows) {
    const int64_t rows = std::min(sizes[call++ % sizes.size()], qkv.rows - first);
    const Matrix part = Call(rig, {{.slot = slot, .qkv = &qkv, .first = first, .rows = rows}});
    at = std::copy(part.values.begin(), part.values.end(), at);
    first += rows;
  }
  return all;
}

}  // namespace voxrt::test
