// Checks of plans, operation arguments and preparation requests: shapes, element types, bounds. Written once for all
// backends, so that misuse fails the same way everywhere and a backend contains arithmetic only.
//
// How a backend uses them: it keeps one OpChecker per stream, calls SetPlan from Stream::SetPlan, and begins every
// operation with the Check of its argument struct. Prepare, PrepareConv and CreateSessionState return the Status of
// Validate before anything is allocated. Fusions spelled by compose.h need no call of their own: their primitives
// check.
//
// Row rule: views of operations that read a plan have at least as many rows as the plan (they may have been made for a
// larger RunKey); rows beyond the plan are undefined and nobody reads them. Views of other operations have equal row
// counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch_plan.h"
#include "backend/device.h"
#include "backend/linear.h"
#include "backend/stream.h"
#include "backend/view.h"
#include "base/status.h"
#include "quant/dtype.h"

namespace voxrt::backend {

// Requests that depend on model files or flags: reported, not CHECKed. Messages name the weight.
Status Validate(const LinearSpec& spec);
Status Validate(const ConvSpec& spec);
Status Validate(const SessionStateSpec& spec);
// Rows and cols >= 1 and a byte count below 2^47.
Status ValidateAllocation(int64_t rows, int64_t cols, quant::DType dtype);

// Smallest ring of the contract: window - 1 + max_rows.
int64_t MinRingRows(const KvSpec& spec);

// A plan by itself: groups cover the rows without gaps, each slot once, indices not negative. CHECKed: plans are built
// by us.
void CheckPlan(PlanId id, const BatchPlan& plan, const SessionStateSpec& state);

class OpChecker {
 public:
  // `activation_dtypes`: element types the backend takes where the contract says "activation type" (F32 always
  // allowed).
  OpChecker(const StreamSpec& spec, const SessionStateSpec& state, std::span<const quant::DType> activation_dtypes);

  // Also keeps what later checks need; the plan itself is not kept.
  void SetPlan(PlanId id, const BatchPlan& plan);

  void Check(const RunKey& key) const;
  void Check(const EmbedArgs& args) const;
  void Check(const LinearArgs& args) const;
  void Check(const LinearPairArgs& args) const;
  void Check(const RmsNormArgs& args) const;
  void Check(const RopeStoreKvArgs& args) const;
  void Check(const WindowAttentionArgs& args) const;
  void Check(const CausalConv1dArgs& args) const;
  void Check(const ArgMaxArgs& args) const;
  void CheckGelu(const ElementwiseArgs& args) const;
  void CheckAdd(const ElementwiseArgs& args) const;
  void CheckCopy(const ElementwiseArgs& args) const;
  // For backends that fuse instead of composing.
  void Check(const AttentionInputArgs& args) const;
  void Check(const AttentionOutputArgs& args) const;
  void Check(const FeedForwardInputArgs& args) const;
  void Check(const HeadArgs& args) const;
  void CheckClone(int from, int to, int64_t encoder_end, int64_t decoder_end) const;

 private:
  struct PlanFacts {
    int64_t rows = 0;
    int64_t rope_cols = 0;     // floats of phase per row (cos and sin each)
    int64_t heads_wanted = 0;  // head_rows.size()
    int32_t max_token = -1;
    int32_t max_audio_row = -1;
    int32_t max_delay_row = -1;
    bool has_tokens = false;
    bool has_delays = false;
  };

  const PlanFacts& facts(PlanId id) const { return facts_[static_cast<size_t>(id)]; }
  const KvSpec& kv(PlanId id) const { return id == PlanId::kEncoder ? state_.encoder : state_.decoder; }
  bool IsActivation(const View& view) const;
  void CheckActivation(const View& view, int64_t cols) const;
  void CheckResidual(const View& view, int64_t cols) const;
  void CheckAttention(PlanId plan, int layer, const AttentionShape& shape, const View& qkv) const;

  StreamSpec spec_;
  SessionStateSpec state_;
  std::vector<quant::DType> activation_dtypes_;
  PlanFacts facts_[2];
};

}  // namespace voxrt::backend
