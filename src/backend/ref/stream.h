// The ref backend's stream: every operation runs at once, on the calling thread. Fusions are those of compose.h.
#pragma once

#include <string_view>
#include <vector>

#include "backend/checks.h"
#include "backend/ref/state.h"
#include "backend/stream.h"

namespace voxrt::backend {

class RefStream final : public Stream {
 public:
  RefStream(const StreamSpec& spec, RefSessionState* state);

  void SetPlan(PlanId id, const BatchPlan& plan) override;
  void Run(const RunKey& key, base::FunctionRef<void(Stream&)> emit) override;
  void Upload(const View& destination, const void* source) override;
  Status Readback(const View& source, void* destination) override;
  Status Sync() override { return Status(); }
  void CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) override;
  void SetTapSink(TapSink* sink) override { tap_sink_ = sink; }
  void Tap(std::string_view name, const View& view) override;

  void Embed(const EmbedArgs& args) override;
  void Linear(const LinearArgs& args) override;
  void LinearPair(const LinearPairArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void RopeStoreKv(const RopeStoreKvArgs& args) override;
  void WindowAttention(const WindowAttentionArgs& args) override;
  void CausalConv1d(const CausalConv1dArgs& args) override;
  void Gelu(const ElementwiseArgs& args) override;
  void Add(const ElementwiseArgs& args) override;
  void Copy(const ElementwiseArgs& args) override;
  void ArgMax(const ArgMaxArgs& args) override;

  void AttentionInput(const AttentionInputArgs& args) override;
  void AttentionOutput(const AttentionOutputArgs& args) override;
  void FeedForwardInput(const FeedForwardInputArgs& args) override;
  void Head(const HeadArgs& args) override;

 private:
  const BatchPlan& plan(PlanId id) const { return plans_[static_cast<size_t>(id)]; }
  KvRing& ring(PlanId id, int slot);
  void Attend(const WindowAttentionArgs& args, const PlanGroup& group, int64_t row);
  int32_t SlotOfDecoderRow(int32_t row) const;

  RefSessionState* state_;
  OpChecker checker_;
  BatchPlan plans_[2];
  TapSink* tap_sink_ = nullptr;
};

}  // namespace voxrt::backend
