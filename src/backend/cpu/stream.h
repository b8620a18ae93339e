// The CPU stream: executes each operation at once on the device's workers. What is split over workers and in which
// phases is decided here; the arithmetic is in the kernels and does not depend on the split.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/device.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/state.h"
#include "backend/cpu/weights.h"
#include "backend/stream.h"

namespace voxrt::backend::cpu {

class CpuStream : public Stream {
 public:
  CpuStream(const StreamSpec& spec, std::shared_ptr<Workers> workers);

  void SetPlan(PlanId id, const BatchPlan& plan) override;
  void Run(const RunKey& key, base::FunctionRef<void(Stream&)> emit) override;
  void Upload(const View& destination, const void* source) override;
  Status Readback(const View& source, void* destination) override;
  Status Sync() override { return {}; }
  void CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) override;
  void SetTapSink(TapSink* sink) override { sink_ = sink; }
  void Tap(std::string_view name, const View& view) override {
    if (sink_ != nullptr) TakeTap(name, view);
  }

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
  // Input of a linear layer: rows as they are, or normalised by each worker (few rows) or once before (many rows).
  struct Input {
    View x;
    View gain = {};    // empty: no norm
    View scales = {};  // empty, or the adaptive scale table
    float epsilon = 0.0f;
    View normed = {};  // where many rows are normalised to
    int64_t rows = 0;
    const int32_t* row_of = nullptr;  // [rows] which rows of x are meant; null: the first ones
  };
  // What a linear layer leaves, besides the weight's own bias.
  struct Output {
    View out = {};  // empty: arg-max only
    Epilogue epilogue = Epilogue::kNone;
    const RopeStoreKvArgs* rope = nullptr;  // rotates q and k of the columns that the worker has made
    bool arg_max = false;
    bool pair = false;  // silu(gate) * up instead of both
  };
  using Job = base::FunctionRef<void(int worker, int workers)>;

  void RunWorkers(Job job);
  void RunLinearOp(const Input& input, const CpuLinear& weight, const Output& output);
  void PrepareRow(const Input& input, const CpuLinear& weight, int64_t row, float* normed, std::byte* codes) const;
  void PrepareRows(const Input& input, const CpuLinear& weight, WorkerScratch& scratch, LinearJob& job);
  void PrepareManyRows(const Input& input, const CpuLinear& weight);
  void NormRow(const Input& input, int64_t row, float* out) const;
  bool ScanHead(const Input& input, const CpuLinear& weight, const View& token);
  void ResetBest(int worker, int64_t rows);
  int32_t BestOfWorkers(int64_t row, int64_t rows) const;
  void RopeColumns(const RopeStoreKvArgs& args, int64_t head_begin, int64_t head_end, int64_t row_begin,
                   int64_t row_end);
  void StoreTokens(const View& out, int64_t rows);
  void TakeTap(std::string_view name, const View& view);
  // Rows [0, rows) split evenly over the workers; few rows stay on the caller's thread.
  void ForRows(int64_t rows, int64_t work_per_row, base::FunctionRef<void(int64_t row)> body);
  const BatchPlan& plan(PlanId id) const { return plans_[static_cast<size_t>(id)]; }
  int SlotOfRow(PlanId id, int64_t row) const;

  std::shared_ptr<Workers> workers_;
  CpuSessionState* state_;
  OpChecker checker_;
  BatchPlan plans_[2];
  TapSink* sink_ = nullptr;
  std::vector<std::unique_ptr<WorkerScratch>> scratch_;  // [workers]
  Scratch frames_;                                       // gathered convolution frames
  Scratch codes_;                                        // many activation rows as int8
  std::vector<float> best_value_;                        // [workers][rows]
  std::vector<int32_t> best_index_;                      // [workers][rows]
  Scratch scan_normed_;                                  // head scan: inputs, their codes, scores of all rows
  Scratch scan_codes_;
  Scratch scan_scores_;
  std::vector<int32_t> candidates_;  // rows of the head that are multiplied exactly
};

}  // namespace voxrt::backend::cpu
