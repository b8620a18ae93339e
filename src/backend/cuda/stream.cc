#include "backend/cuda/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "backend/cuda/error.h"
#include "base/check.h"

namespace voxrt::cuda {

using backend::KvId;
using backend::PlanId;
using backend::RunKey;
using backend::View;
using quant::DType;

namespace {

constexpr size_t kMostGraphs = 256;
constexpr int64_t kSmallCounters = 16;  // conv 0, conv 1, head counter, head sequence
constexpr int64_t kMostHeadRows = 4096;

}  // namespace

UploadRing::~UploadRing() {
  for (cudaEvent_t event : done_) {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  }
}

Status UploadRing::Init() {
  VOXRT_ASSIGN_OR_RETURN(host_, PinnedBlock::Allocate(kSlotBytes * kSlots));
  for (cudaEvent_t& event : done_) {
    VOXRT_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cannot create a CUDA event"));
  }
  return {};
}

Status UploadRing::Copy(cudaStream_t stream, void* to, int64_t pitch, const void* from, int64_t width, int64_t rows) {
  if (pitch == width) {  // dense: one long row
    width *= rows;
    rows = 1;
  }
  const int64_t piece_width = std::min(width, kSlotBytes);
  const int64_t piece_rows = std::max<int64_t>(1, kSlotBytes / piece_width);
  for (int64_t row = 0; row < rows; row += piece_rows) {
    for (int64_t col = 0; col < width; col += piece_width) {
      const int64_t bytes = std::min(piece_width, width - col);
      const int64_t count = std::min(piece_rows, rows - row);
      VOXRT_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(done_[next_]), "cannot upload"));
      std::byte* slot = host_.data() + next_ * kSlotBytes;
      for (int64_t r = 0; r < count; ++r) {
        std::memcpy(slot + r * bytes, static_cast<const std::byte*>(from) + (row + r) * width + col,
                    static_cast<size_t>(bytes));
      }
      std::byte* target = static_cast<std::byte*>(to) + row * pitch + col;
      const cudaError_t error =
          count == 1 ? cudaMemcpyAsync(target, slot, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream)
                     : cudaMemcpy2DAsync(target, static_cast<size_t>(pitch), slot, static_cast<size_t>(bytes),
                                         static_cast<size_t>(bytes), static_cast<size_t>(count), cudaMemcpyHostToDevice,
                                         stream);
      VOXRT_RETURN_IF_ERROR(ToStatus(error, "cannot upload"));
      VOXRT_RETURN_IF_ERROR(ToStatus(cudaEventRecord(done_[next_], stream), "cannot upload"));
      next_ = (next_ + 1) % kSlots;
    }
  }
  return {};
}

bool CudaStream::GraphKey::operator==(const GraphKey& other) const {
  if (!(run == other.run) || head_rows != other.head_rows) return false;
  for (int i = 0; i < 2; ++i) {
    if (rows[i] != other.rows[i] || tiles[i].tiles != other.tiles[i].tiles ||
        tiles[i].most_rows != other.tiles[i].most_rows || long_call[i] != other.long_call[i] ||
        (tiles[i].most_group_rows <= cuda_kernels::kMostOwnRows) !=
            (other.tiles[i].most_group_rows <= cuda_kernels::kMostOwnRows)) {
      return false;
    }
  }
  return true;
}

CudaStream::CudaStream(CudaDevice& device, const backend::StreamSpec& spec)
    : device_(device),
      spec_(spec),
      checker_(spec,
               spec.state != nullptr ? static_cast<CudaSessionState*>(spec.state)->spec() : backend::SessionStateSpec{},
               std::array{DType::kBF16}) {}

Result<std::unique_ptr<backend::Stream>> CudaStream::Create(CudaDevice& device, const backend::StreamSpec& spec) {
  std::unique_ptr<CudaStream> stream(new CudaStream(device, spec));
  VOXRT_RETURN_IF_ERROR(stream->Init());
  return std::unique_ptr<backend::Stream>(std::move(stream));
}

Status CudaStream::Init() {
  state_ = static_cast<CudaSessionState*>(spec_.state);
  // The live stream goes before whatever else the device does.
  int least = 0;
  int greatest = 0;
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cannot create a CUDA stream"));
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cannot create a CUDA stream"));
  VOXRT_RETURN_IF_ERROR(upload_.Init());
  const int64_t small_bytes = kSmallCounters * 4 + kMostHeadRows * 8;
  VOXRT_ASSIGN_OR_RETURN(small_, DeviceBlock::Allocate(small_bytes, "counters"));
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(small_.as<void>(), 0, static_cast<size_t>(small_bytes), stream_),
                                 "cannot clear memory"));
  VOXRT_ASSIGN_OR_RETURN(mapped_, PinnedBlock::Allocate(256 + kMostHeadRows * 4));
  std::memset(mapped_.data(), 0, static_cast<size_t>(mapped_.bytes()));
  int64_t plan_bytes = 0;
  if (state_ != nullptr) {
    half_[0] = state_->kv(KvId::kEncoder).head_dim / 2;
    half_[1] = state_->kv(KvId::kDecoder).head_dim / 2;
  }
  plan_bytes =
      MakePlanLayout(spec_.max_encoder_rows, half_[0]).bytes + MakePlanLayout(spec_.max_decoder_rows, half_[1]).bytes;
  VOXRT_ASSIGN_OR_RETURN(plan_block_, DeviceBlock::Allocate(plan_bytes, "plans"));
  plan_bytes_.resize(static_cast<size_t>(plan_bytes));
  return ToStatus(cudaStreamSynchronize(stream_), "cannot start a stream");
}

CudaStream::~CudaStream() {
  if (stream_ == nullptr) return;
  static_cast<void>(cudaStreamSynchronize(stream_));
  for (Graph& graph : graphs_) static_cast<void>(cudaGraphExecDestroy(graph.exec));
  static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaStream::Fail(Status status) {
  if (status_.ok() && !status.ok()) status_ = std::move(status);
}

void CudaStream::SetPlan(PlanId id, const backend::BatchPlan& plan) {
  checker_.SetPlan(id, plan);
  plans_[static_cast<size_t>(id)] = plan;
}

void CudaStream::NoteShapes(const std::vector<Op>& ops) {
  auto note = [this](PlanId plan, const backend::AttentionShape& shape) {
    const auto id = static_cast<KvId>(plan);
    positions_[static_cast<size_t>(plan)] = cuda_kernels::AttentionTilePositions(
        shape.heads, shape.kv_heads, shape.head_dim, state_ != nullptr && state_->kv(id).dtype == DType::kI8,
        device_.limits().shared_limit);
  };
  for (const Op& op : ops) {
    if (const auto* a = std::get_if<backend::WindowAttentionArgs>(&op)) note(a->plan, a->shape);
    if (const auto* a = std::get_if<backend::AttentionOutputArgs>(&op)) note(a->plan, a->shape);
  }
}

CudaStream::GraphKey CudaStream::MakeKey(const RunKey& run) const {
  GraphKey key;
  key.run = run;
  const int64_t rows[2] = {run.encoder_rows, run.decoder_rows};
  if (rows[1] > 0) key.head_rows = static_cast<int64_t>(plans_[1].head_rows.size());
  for (size_t i = 0; i < 2; ++i) {
    if (rows[i] == 0) continue;
    key.rows[i] = plans_[i].rows;
    key.tiles[i] = CountTiles(plans_[i], std::max(1, positions_[i]));
    if (state_ != nullptr) key.long_call[i] = key.tiles[i].most_group_rows > state_->kv(static_cast<KvId>(i)).max_rows;
  }
  return key;
}

void CudaStream::UploadPlans(const GraphKey& key, LoweringContext* context) {
  int64_t at = 0;
  for (size_t i = 0; i < 2; ++i) {
    if (key.rows[i] == 0) continue;
    const PlanLayout l = MakePlanLayout(key.rows[i], half_[i]);
    PackPlan(plans_[i], half_[i], std::max(1, positions_[i]),
             state_ != nullptr ? state_->spec().max_sessions : (1 << 30),
             std::span(plan_bytes_).subspan(static_cast<size_t>(at), static_cast<size_t>(l.bytes)));
    const std::byte* base = plan_block_.as<std::byte>() + at;
    auto ints = [base](int64_t offset) { return reinterpret_cast<const int32_t*>(base + offset); };
    PlanPointers& p = context->plans[i];
    p.index = reinterpret_cast<const int64_t*>(base + l.index);
    p.first = reinterpret_cast<const int64_t*>(base + l.first);
    p.slot = ints(l.slot);
    p.begin = ints(l.begin);
    p.count = ints(l.count);
    p.tile_row = ints(l.tile_row);
    p.tile_rows = ints(l.tile_rows);
    p.token = ints(l.token);
    p.audio_row = ints(l.audio_row);
    p.delay_row = ints(l.delay_row);
    p.head_row = ints(l.head_row);
    p.cos = reinterpret_cast<const float*>(base + l.cos);
    p.sin = reinterpret_cast<const float*>(base + l.sin);
    p.rows = key.rows[i];
    p.head_rows = i == 1 ? key.head_rows : 0;
    p.tiles = key.tiles[i].tiles;
    p.most_tile_rows = key.tiles[i].most_rows;
    p.long_call = key.long_call[i];
    p.most_rows = key.tiles[i].most_group_rows;
    at += l.bytes;
  }
  if (at > 0) Fail(upload_.Copy(stream_, plan_block_.as<void>(), at, plan_bytes_.data(), at, 1));
}

LoweringContext CudaStream::MakeContext() {
  LoweringContext c = scratch_pointers_;
  c.device = device_.limits();
  auto* counters = small_.as<uint32_t>();
  c.conv_counters = counters;
  c.head_counter = counters + 2;
  c.head_sequence = counters + 3;
  c.trace = trace_.as<unsigned long long>();
  c.head_best = reinterpret_cast<unsigned long long*>(small_.as<std::byte>() + kSmallCounters * 4);
  void* mapped = nullptr;
  Fail(ToStatus(cudaHostGetDevicePointer(&mapped, mapped_.data(), 0), "cannot map host memory"));
  c.host_flag = static_cast<uint32_t*>(mapped);
  c.host_tokens = reinterpret_cast<int32_t*>(static_cast<std::byte*>(mapped) + 256);
  if (state_ == nullptr) return c;
  c.cache = [state = state_](PlanId id, int layer) { return state->cache(static_cast<KvId>(id), layer); };
  c.windows[0] = static_cast<int32_t>(state_->kv(KvId::kEncoder).window);
  c.windows[1] = static_cast<int32_t>(state_->kv(KvId::kDecoder).window);
  c.conv_tails[0] = state_->tail(0);
  c.conv_tails[1] = state_->tail(1);
  c.slot_tokens = state_->tokens();
  return c;
}

std::vector<Phase> CudaStream::LowerWithScratch(const std::vector<Op>& ops, LoweringContext* context) {
  LoweringNeeds needs;
  std::vector<Phase> phases = Lower(ops, *context, &needs);
  bool grown = false;
  auto grow = [&](int64_t need, int64_t LoweringNeeds::*have, int64_t unit, auto assign) {
    if (need <= have_.*have || failed()) return;
    // Graphs keep the blocks that they were recorded with: by doubling, all of them together stay below twice the last,
    // also where batches grow session by session.
    const int64_t size = std::max(need, 2 * (have_.*have));
    Result<DeviceBlock> block = DeviceBlock::Allocate(size * unit, "scratch");
    if (!block.ok()) return Fail(block.status());
    Fail(ToStatus(cudaMemsetAsync(block->as<void>(), 0, static_cast<size_t>(size * unit), stream_),
                  "cannot clear memory"));
    assign(block->as<void>());
    have_.*have = size;
    scratch_.push_back(*std::move(block));
    grown = true;
  };
  LoweringContext& s = scratch_pointers_;
  grow(needs.ingest_bytes, &LoweringNeeds::ingest_bytes, 1, [&](void* p) { s.ingest = p; });
  grow(needs.workspace_floats, &LoweringNeeds::workspace_floats, 4,
       [&](void* p) { s.workspace = static_cast<float*>(p); });
  grow(needs.counters, &LoweringNeeds::counters, 4, [&](void* p) { s.counters = static_cast<uint32_t*>(p); });
  grow(needs.own_codes, &LoweringNeeds::own_codes, 1, [&](void* p) { s.own_codes = static_cast<int8_t*>(p); });
  grow(needs.own_scales, &LoweringNeeds::own_scales, 4, [&](void* p) { s.own_scales = static_cast<float*>(p); });
  if (failed() || !grown) return phases;
  context->ingest = s.ingest;
  context->workspace = s.workspace;
  context->counters = s.counters;
  context->own_codes = s.own_codes;
  context->own_scales = s.own_scales;
  return Lower(ops, *context, &needs);
}

void CudaStream::LaunchEagerly(const std::vector<Phase>& phases) {
  bool first = true;
  for (const Phase& phase : phases) {
    if (failed()) return;
    if (const auto* tap = std::get_if<TapOp>(&phase.body)) {
      TakeTap(*tap);
      first = true;
      continue;
    }
    const cuda_kernels::LaunchContext context{.stream = stream_,
                                              .programmatic = device_.programmatic() && !plain_edges_ && !first,
                                              .device = device_.limits()};
    first = false;
    Fail(ToStatus(LaunchPhase(phase, context), "cannot launch '" + Describe(phase) + "'"));
  }
}

bool CudaStream::Capture(const std::vector<Phase>& phases, Graph* graph) {
  Fail(ToStatus(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cannot record a CUDA graph"));
  if (failed()) return false;
  LaunchEagerly(phases);
  cudaGraph_t captured = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream_, &captured);
  Fail(ToStatus(error, "cannot record a CUDA graph"));
  if (!failed()) Fail(ToStatus(cudaGraphInstantiate(&graph->exec, captured, 0), "cannot make a CUDA graph"));
  if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
  if (!failed()) Fail(ToStatus(cudaGraphUpload(graph->exec, stream_), "cannot upload a CUDA graph"));
  return !failed();
}

void CudaStream::Run(const RunKey& key, base::FunctionRef<void(backend::Stream&)> emit) {
  if (failed()) return;
  static_cast<void>(cudaSetDevice(device_.ordinal()));
  const bool taps = tap_sink_ != nullptr;
  checker_.Check(key);
  auto find = [&](const GraphKey& wanted) {
    return std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& g) { return g.key == wanted; });
  };
  GraphKey graph_key = MakeKey(key);
  if (!taps && !eager_) {
    const auto it = find(graph_key);
    if (it != graphs_.end()) {
      LoweringContext unused;
      UploadPlans(graph_key, &unused);
      if (it != graphs_.begin()) std::iter_swap(it, graphs_.begin());
      const Graph& graph = graphs_.front();
      Fail(ToStatus(cudaGraphLaunch(graph.exec, stream_), "cannot launch a CUDA graph"));
      NoteTokens(graph);
      return;
    }
  }
  ops_.clear();
  recording_ = true;
  emit(*this);
  recording_ = false;
  NoteShapes(ops_);
  Execute(ops_, MakeKey(key));
}

void CudaStream::Execute(const std::vector<Op>& ops, const GraphKey& key) {
  LoweringContext context = MakeContext();
  UploadPlans(key, &context);
  last_phases_ = LowerWithScratch(ops, &context);
  if (failed()) return;
  Graph graph;
  graph.key = key;
  int heads = 0;
  for (const Op& op : ops) {
    if (std::holds_alternative<backend::ArgMaxArgs>(op)) graph.writes_tokens = true;
    const auto* head = std::get_if<backend::HeadArgs>(&op);
    if (head == nullptr) continue;
    VOXRT_CHECK(head->token.rows <= kMostHeadRows && heads == 0);  // one per Run: its tokens have one place on the host
    graph.token_view = static_cast<const int32_t*>(head->token.data);
    graph.token_rows = key.head_rows;
    graph.writes_tokens = true;
    if (key.head_rows == 0) graph.token_view = nullptr;
    ++heads;
  }
  const bool worth_a_graph = key.rows[0] + key.rows[1] <= 1024 && ops.size() > 1;
  if (tap_sink_ != nullptr || eager_ || !worth_a_graph) {
    LaunchEagerly(last_phases_);
  } else {
    // The first execution has the lazy loading of kernels in it, which a capture must not see: run it, record for the
    // next time.
    LaunchEagerly(last_phases_);
    if (!failed() && Capture(last_phases_, &graph)) {
      graphs_.push_front(graph);
      if (graphs_.size() > kMostGraphs) {
        Fail(ToStatus(cudaStreamSynchronize(stream_), "cannot wait for the GPU"));
        static_cast<void>(cudaGraphExecDestroy(graphs_.back().exec));
        graphs_.pop_back();
      }
    }
  }
  NoteTokens(graph);
}

void CudaStream::NoteTokens(const Graph& graph) {
  if (!graph.writes_tokens) return;
  last_token_view_ = graph.token_view;
  last_token_rows_ = graph.token_rows;
  if (graph.token_view != nullptr) ++heads_expected_;
}

void CudaStream::Emit(Op op) {
  if (failed()) return;
  if (recording_) {
    ops_.push_back(std::move(op));
    return;
  }
  const std::vector<Op> ops = {std::move(op)};
  NoteShapes(ops);
  Execute(ops, MakeKey({.encoder_rows = plans_[0].rows, .decoder_rows = plans_[1].rows}));
}

void CudaStream::Gelu(const backend::ElementwiseArgs& args) {
  checker_.CheckGelu(args);
  Emit(GeluOp{args});
}
void CudaStream::Add(const backend::ElementwiseArgs& args) {
  checker_.CheckAdd(args);
  Emit(AddOp{args});
}
void CudaStream::Copy(const backend::ElementwiseArgs& args) {
  checker_.CheckCopy(args);
  Emit(CopyOp{args});
}

void CudaStream::Tap(std::string_view name, const View& view) {
  if (tap_sink_ == nullptr || !tap_sink_->Wants(name)) return;
  Emit(TapOp{std::string(name), view});
}

void CudaStream::TakeTap(const TapOp& tap) {
  if (tap_sink_ == nullptr) return;
  const auto count = static_cast<size_t>(tap.view.rows * tap.view.cols);
  std::vector<float> values(count);
  std::vector<std::byte> raw(count * quant::DTypeBytes(tap.view.dtype));
  const Status status = Readback(tap.view, raw.data());
  if (!status.ok()) return Fail(status);
  if (tap.view.dtype == DType::kI32) {
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(reinterpret_cast<const int32_t*>(raw.data())[i]);
  } else {
    for (size_t i = 0; i < count; ++i) values[i] = quant::LoadFloat(raw.data(), tap.view.dtype, i);
  }
  tap_sink_->Take(tap.name, tap.view.rows, tap.view.cols, values.data());
}

void CudaStream::Upload(const View& destination, const void* source) {
  if (failed()) return;
  VOXRT_CHECK(!recording_);
  const auto element = static_cast<int64_t>(quant::DTypeBytes(destination.dtype));
  Fail(upload_.Copy(stream_, destination.data, destination.stride * element, source, destination.cols * element,
                    destination.rows));
}

Status CudaStream::ReadToken(const View& source, void* destination) {
  const volatile uint32_t* flag = reinterpret_cast<const volatile uint32_t*>(mapped_.data());
  for (int64_t spins = 0; *flag != heads_expected_; ++spins) {
    if (spins < 4096) continue;
    // The token of a failed launch never comes.
    if (spins % 1024 == 0) {
      const cudaError_t error = cudaStreamQuery(stream_);
      if (error == cudaSuccess && *flag != heads_expected_)
        return {StatusCode::kInternal, "the GPU finished without delivering a token"};
      if (error != cudaSuccess && error != cudaErrorNotReady) {
        Fail(ToStatus(error, "the GPU failed"));
        return status_;
      }
    }
    std::this_thread::yield();
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  const int64_t first = static_cast<const int32_t*>(source.data) - last_token_view_;
  std::memcpy(destination, mapped_.data() + 256 + first * 4, static_cast<size_t>(source.rows) * 4);
  return {};
}

Status CudaStream::Readback(const View& source, void* destination) {
  if (failed()) return status_;
  VOXRT_CHECK(!recording_);
  if (last_token_view_ != nullptr && source.dtype == DType::kI32 && source.cols == 1 && source.stride == 1) {
    const int64_t first = static_cast<const int32_t*>(source.data) - last_token_view_;
    if (first >= 0 && first + source.rows <= last_token_rows_) return ReadToken(source, destination);
  }
  const size_t element = quant::DTypeBytes(source.dtype);
  const size_t width = static_cast<size_t>(source.cols) * element;
  Fail(ToStatus(cudaMemcpy2DAsync(destination, width, source.data, static_cast<size_t>(source.stride) * element, width,
                                  static_cast<size_t>(source.rows), cudaMemcpyDeviceToHost, stream_),
                "cannot read back"));
  return Sync();
}

Status CudaStream::Sync() {
  if (!failed()) Fail(ToStatus(cudaStreamSynchronize(stream_), "the GPU failed"));
  return status_;
}

void CudaStream::CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) {
  if (failed()) return;
  VOXRT_CHECK(state_ != nullptr && !recording_);
  checker_.CheckClone(from, to, encoder_end, decoder_end);
  const cuda_kernels::LaunchContext context{.stream = stream_};
  const int64_t ends[2] = {encoder_end, decoder_end};
  for (size_t i = 0; i < 2; ++i) {
    const auto id = static_cast<KvId>(i);
    if (ends[i] == 0 || state_->kv(id).layers == 0) continue;
    Fail(state_->Reserve(to, id, ends[i]));
    cuda_kernels::CloneParams p;
    p.cache = state_->cache(id, 0);
    p.layer_bytes = state_->layer_bytes(id);
    p.layer_scales = state_->layer_scales(id);
    p.layers = state_->kv(id).layers;
    p.element_bytes = state_->kv(id).dtype == DType::kI8 ? 1 : 2;
    p.from = from;
    p.to = to;
    p.pages = state_->pages_for(id, ends[i]);
    if (!failed()) Fail(ToStatus(cuda_kernels::LaunchClone(p, context), "cannot copy a session"));
  }
  for (int i = 0; i < 2; ++i) {
    const int64_t floats = (2 - i) * state_->spec().conv_channels[i];
    if (floats == 0 || failed()) continue;
    Fail(ToStatus(cudaMemcpyAsync(state_->tail(i) + to * floats, state_->tail(i) + from * floats,
                                  static_cast<size_t>(floats) * 4, cudaMemcpyDeviceToDevice, stream_),
                  "cannot copy a session"));
  }
  if (!failed()) {
    Fail(ToStatus(cudaMemcpyAsync(state_->tokens() + to, state_->tokens() + from, 4, cudaMemcpyDeviceToDevice, stream_),
                  "cannot copy a session"));
  }
}

Status CudaStream::StartTrace() {
  constexpr int64_t kBytes = int64_t{1024} * cuda_kernels::kTraceBlocks * cuda_kernels::kTraceMarks * 8;
  VOXRT_ASSIGN_OR_RETURN(trace_, DeviceBlock::Allocate(kBytes, "a trace"));
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(trace_.as<void>(), 0, kBytes, stream_), "cannot clear memory"));
  for (Graph& graph : graphs_) static_cast<void>(cudaGraphExecDestroy(graph.exec));
  graphs_.clear();
  return Sync();
}

std::vector<unsigned long long> CudaStream::ReadTrace() {
  std::vector<unsigned long long> marks(last_phases_.size() * cuda_kernels::kTraceBlocks * cuda_kernels::kTraceMarks);
  Fail(ToStatus(cudaMemcpyAsync(marks.data(), trace_.as<void>(), marks.size() * 8, cudaMemcpyDeviceToHost, stream_),
                "cannot read the trace"));
  Fail(Sync());
  return marks;
}

std::vector<std::string> CudaStream::DescribeLastRecording() const {
  std::vector<std::string> lines;
  for (const Phase& phase : last_phases_) lines.push_back(Describe(phase));
  return lines;
}

}  // namespace voxrt::cuda
