// CudaStream: records the operations of a Run once per key, lowers them to phases, captures the phases into a CUDA
// graph and replays it. Plans travel as one small block; the winning token comes back through mapped host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <vector>

#include "backend/checks.h"
#include "backend/cuda/device.h"
#include "backend/cuda/lowering.h"
#include "backend/cuda/plan_layout.h"
#include "backend/cuda/session_state.h"
#include "backend/stream.h"

namespace voxrt::cuda {

// Pinned slots for host data on its way to the device; a slot is reused once its copy is done.
class UploadRing {
 public:
  static constexpr int64_t kSlotBytes = int64_t{1} << 20;
  static constexpr int kSlots = 16;

  ~UploadRing();
  Status Init();
  // Copies dense host rows to `to` (row pitch `pitch` bytes), in pieces.
  Status Copy(cudaStream_t stream, void* to, int64_t pitch, const void* from, int64_t width, int64_t rows);

 private:
  PinnedBlock host_;
  cudaEvent_t done_[kSlots] = {};
  int next_ = 0;
};

class CudaStream final : public backend::Stream {
 public:
  static Result<std::unique_ptr<backend::Stream>> Create(CudaDevice& device, const backend::StreamSpec& spec);
  ~CudaStream() override;

  void SetPlan(backend::PlanId id, const backend::BatchPlan& plan) override;
  void Run(const backend::RunKey& key, base::FunctionRef<void(backend::Stream&)> emit) override;
  void Upload(const backend::View& destination, const void* source) override;
  Status Readback(const backend::View& source, void* destination) override;
  Status Sync() override;
  void CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) override;
  void SetTapSink(backend::TapSink* sink) override { tap_sink_ = sink; }
  void Tap(std::string_view name, const backend::View& view) override;

  void Embed(const backend::EmbedArgs& args) override { Checked(args); }
  void Linear(const backend::LinearArgs& args) override { Checked(args); }
  void LinearPair(const backend::LinearPairArgs& args) override { Checked(args); }
  void RmsNorm(const backend::RmsNormArgs& args) override { Checked(args); }
  void RopeStoreKv(const backend::RopeStoreKvArgs& args) override { Checked(args); }
  void WindowAttention(const backend::WindowAttentionArgs& args) override { Checked(args); }
  void CausalConv1d(const backend::CausalConv1dArgs& args) override { Checked(args); }
  void Gelu(const backend::ElementwiseArgs& args) override;
  void Add(const backend::ElementwiseArgs& args) override;
  void Copy(const backend::ElementwiseArgs& args) override;
  void ArgMax(const backend::ArgMaxArgs& args) override { Checked(args); }
  void AttentionInput(const backend::AttentionInputArgs& args) override { Checked(args); }
  void AttentionOutput(const backend::AttentionOutputArgs& args) override { Checked(args); }
  void FeedForwardInput(const backend::FeedForwardInputArgs& args) override { Checked(args); }
  void Head(const backend::HeadArgs& args) override { Checked(args); }

  // Graphs off: every Run launches its phases one by one (for tests: same results).
  void SetEager(bool eager) { eager_ = eager; }
  // Plain edges between phases instead of programmatic ones (for comparison: same results). Before the first Run.
  void SetPlainEdges(bool plain) { plain_edges_ = plain; }
  // Marks of every phase (kernels/params.h) from now on; read after Sync: [phases][kTraceMarks], 0 where a phase has
  // none.
  Status StartTrace();
  std::vector<unsigned long long> ReadTrace();
  // The phases of the last Run that was recorded, one line each.
  std::vector<std::string> DescribeLastRecording() const;
  int64_t graphs() const { return static_cast<int64_t>(graphs_.size()); }
  cudaStream_t cuda_stream() const { return stream_; }

 private:
  // What a graph depends on: the caller's key, and how the plans' rows fall into attention tiles.
  struct GraphKey {
    backend::RunKey run;
    int64_t rows[2] = {0, 0};  // of the plans, at most those of the key
    int64_t head_rows = 0;
    PlanTiles tiles[2];
    bool long_call[2] = {false, false};
    bool operator==(const GraphKey& other) const;
  };
  struct Graph {
    GraphKey key;
    cudaGraphExec_t exec = nullptr;
    const int32_t* token_view = nullptr;  // of the Head in it
    int64_t token_rows = 0;
    bool writes_tokens = false;  // Head or ArgMax
  };

  CudaStream(CudaDevice& device, const backend::StreamSpec& spec);
  Status Init();
  void Emit(Op op);
  template <typename Args>
  void Checked(const Args& args) {
    checker_.Check(args);
    Emit(args);
  }
  void Fail(Status status);
  bool failed() const { return !status_.ok(); }

  // Notes the attention shape of each plan, which decides how many rows share a tile.
  void NoteShapes(const std::vector<Op>& ops);
  GraphKey MakeKey(const backend::RunKey& key) const;
  // Packs the plans that the key uses into one block and uploads it; fills pointers.
  void UploadPlans(const GraphKey& key, LoweringContext* context);
  LoweringContext MakeContext();
  std::vector<Phase> LowerWithScratch(const std::vector<Op>& ops, LoweringContext* context);
  void LaunchEagerly(const std::vector<Phase>& phases);
  bool Capture(const std::vector<Phase>& phases, Graph* graph);
  void Execute(const std::vector<Op>& ops, const GraphKey& key);
  void TakeTap(const TapOp& tap);
  void NoteTokens(const Graph& graph);
  Status ReadToken(const backend::View& source, void* destination);

  CudaDevice& device_;
  backend::StreamSpec spec_;
  backend::OpChecker checker_;
  CudaSessionState* state_ = nullptr;
  cudaStream_t stream_ = nullptr;
  Status status_;
  backend::TapSink* tap_sink_ = nullptr;
  bool eager_ = false;
  bool plain_edges_ = false;

  backend::BatchPlan plans_[2];
  int64_t half_[2] = {0, 0};   // rotary pairs per row
  int positions_[2] = {0, 0};  // rows of a session in one attention tile; 0 = not known yet
  DeviceBlock plan_block_;
  std::vector<std::byte> plan_bytes_;
  UploadRing upload_;

  bool recording_ = false;
  std::vector<Op> ops_;
  std::vector<Phase> last_phases_;
  std::deque<Graph> graphs_;  // newest use in front

  // Scratch blocks; outgrown ones stay, because older graphs point to them.
  std::vector<DeviceBlock> scratch_;
  LoweringNeeds have_;
  LoweringContext scratch_pointers_;

  DeviceBlock trace_;
  DeviceBlock small_;   // counters and the head's scratch, zero between calls
  PinnedBlock mapped_;  // flag and tokens of the last head
  uint32_t heads_expected_ = 0;
  const int32_t* last_token_view_ = nullptr;  // the last operation that wrote tokens was a Head with this view
  int64_t last_token_rows_ = 0;
};

}  // namespace voxrt::cuda
