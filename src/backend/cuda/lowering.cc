#include "backend/cuda/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/prepared.h"
#include "base/check.h"

namespace voxrt::cuda {

using backend::Epilogue;
using backend::PlanId;
using backend::View;
using cuda_kernels::Element;
using cuda_kernels::InputKind;
using cuda_kernels::InputRef;
using cuda_kernels::LinearParams;
using cuda_kernels::OutputKind;
using cuda_kernels::OutputRef;
using quant::DType;

namespace {

Element ElementOf(const View& view) {
  VOXRT_CHECK(view.dtype == DType::kF32 || view.dtype == DType::kBF16);
  return view.dtype == DType::kF32 ? Element::kF32 : Element::kBf16;
}

int32_t Int(int64_t value) { return static_cast<int32_t>(value); }

class Lowering {
 public:
  Lowering(const LoweringContext& context, LoweringNeeds* needs) : c_(context), needs_(needs) {}

  void SetNext(const Op* next) { next_ = next; }

  std::vector<Phase> Take() {
    GivePlaces();
    LookAhead();
    return std::move(phases_);
  }

  void operator()(const backend::EmbedArgs& a) {
    const PlanPointers& plan = Plan(PlanId::kDecoder);
    cuda_kernels::EmbedParams p;
    p.table = static_cast<const CudaLinear*>(a.table)->weight();
    if (!a.audio.empty()) {
      p.audio = static_cast<const float*>(a.audio.data);
      p.audio_stride = a.audio.stride;
    }
    p.out = static_cast<float*>(a.out.data);
    p.out_stride = a.out.stride;
    p.rows = Int(plan.rows);
    p.token = plan.token;
    p.audio_row = plan.audio_row;
    p.row_slot = plan.slot;
    p.slot_token = c_.slot_tokens;
    Push(p);
  }

  void operator()(const backend::LinearArgs& a) {
    const auto* weight = static_cast<const CudaLinear*>(a.weight);
    OutputRef out = Output(a.out, a.epilogue == Epilogue::kNone   ? OutputKind::kStore
                                  : a.epilogue == Epilogue::kGelu ? OutputKind::kGelu
                                                                  : OutputKind::kAddTo);
    PushLinear(weight->weight(), PlainInput(a.x), out, a.x.rows);
  }

  void operator()(const backend::LinearPairArgs& a) { PushPair(*a.weight, PlainInput(a.x), a.x.rows, a.out); }

  void operator()(const backend::RmsNormArgs& a) {
    cuda_kernels::IngestParams p;
    p.input = NormInput(a.x, a.gain, a.scales, a.epsilon);
    p.rows = Int(NormRows(a.x, a.scales));
    p.cols = p.padded_cols = Int(a.x.cols);
    p.out = a.out.data;
    p.out_stride = a.out.stride;
    p.out_element = ElementOf(a.out);
    Push(p);
  }

  void operator()(const backend::RopeStoreKvArgs& a) {
    const PlanPointers& plan = Plan(a.plan);
    cuda_kernels::RopeParams p;
    p.cache = Cache(a.plan, a.layer, a.shape);
    VOXRT_CHECK(a.qkv.dtype == DType::kBF16);  // the backend's activation type
    p.qkv = a.qkv.data;
    p.stride = a.qkv.stride;
    p.rows = Int(plan.rows);
    p.heads = a.shape.heads;
    p.half_pairs = a.pairing == backend::RopePairing::kHalf ? 1 : 0;
    p.cos = plan.cos;
    p.sin = plan.sin;
    p.row_slot = plan.slot;
    p.row_index = plan.index;
    p.store_cache = plan.long_call ? 0 : 1;
    if (plan.long_call && p.cache.scale != nullptr) {
      NeedOwn(plan.rows, a.shape);
      p.own_codes = c_.own_codes;
      p.own_scale = c_.own_scales;
    }
    Push(p);
  }

  void operator()(const backend::WindowAttentionArgs& a) {
    const PlanPointers& plan = Plan(a.plan);
    AttentionPhase phase;
    cuda_kernels::AttentionParams& p = phase.params;
    p.cache = Cache(a.plan, a.layer, a.shape);
    VOXRT_CHECK(a.qkv.dtype == DType::kBF16 && a.out.dtype == DType::kBF16 && a.qkv.stride % 8 == 0);
    p.q = a.qkv.data;
    p.q_stride = a.qkv.stride;
    p.out = a.out.data;
    p.out_stride = a.out.stride;
    p.heads = a.shape.heads;
    p.window = c_.windows[static_cast<size_t>(a.plan)];
    p.own_rows = plan.long_call ? cuda_kernels::kOwnBeside : cuda_kernels::kOwnInRing;
    if (quantize_in_attention_) p.own_rows = cuda_kernels::kOwnToQuantize;
    quantize_in_attention_ = false;
    const bool int8 = p.cache.scale != nullptr;
    if (plan.long_call && int8) {
      NeedOwn(plan.rows, a.shape);
      p.own_codes = c_.own_codes;
      p.own_scale = c_.own_scales;
    }
    p.row_slot = plan.slot;
    p.row_index = plan.index;
    p.row_first = plan.first;
    p.row_begin = plan.begin;
    p.tile_row = plan.tile_row;
    p.tile_rows = plan.tile_rows;
    p.tiles = plan.tiles;
    p.softmax_scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(a.shape.head_dim)));
    phase.plan = cuda_kernels::PlanAttention(a.shape.heads, a.shape.kv_heads, a.shape.head_dim, int8, plan.tiles,
                                             plan.most_tile_rows, c_.device);
    needs_->workspace_floats = std::max(needs_->workspace_floats, phase.plan.workspace_floats);
    needs_->counters = std::max<int64_t>(needs_->counters, phase.plan.counters);
    p.workspace = c_.workspace;
    p.counter = c_.counters;
    Push(phase);
    if (plan.long_call) PushAppend(a, plan, p);
  }

  void operator()(const backend::CausalConv1dArgs& a) {
    const PlanPointers& plan = Plan(PlanId::kEncoder);
    const auto* conv = static_cast<const CudaConv*>(a.weight);
    InputRef in = PlainInput(a.x);
    in.kind = InputKind::kConv;
    in.conv_stride = conv->stride();
    in.conv_channels = Int(conv->in_channels());
    in.frames_per_row = a.rows_per_plan_row;
    in.tail = c_.conv_tails[a.index];
    in.row_slot = plan.slot;
    in.row_begin = plan.begin;
    in.row_count = plan.count;
    in.counter = c_.conv_counters + a.index;
    in.aligned = in.aligned && in.conv_channels % 8 == 0 ? 1 : 0;
    PushLinear(conv->weight(), in, Output(a.out, OutputKind::kGelu), plan.rows * a.rows_per_plan_row / conv->stride());
  }

  void operator()(const backend::ArgMaxArgs& a) {
    const PlanPointers& plan = Plan(PlanId::kDecoder);
    VOXRT_CHECK(a.out.stride == 1);
    cuda_kernels::ArgMaxParams p;
    p.logits = static_cast<const float*>(a.logits.data);
    p.stride = a.logits.stride;
    p.rows = Int(plan.head_rows);
    p.cols = Int(a.logits.cols);
    p.token = static_cast<int32_t*>(a.out.data);
    p.slot_token = c_.slot_tokens;
    p.head_row = plan.head_row;
    p.row_slot = plan.slot;
    Push(p);
  }

  void operator()(const backend::AttentionInputArgs& a) {
    const PlanPointers& plan = Plan(a.plan);
    const auto& weight = static_cast<const CudaLinear*>(a.qkv_weight)->weight();
    const cuda_kernels::CacheRef cache = Cache(a.plan, a.layer, a.shape);
    VOXRT_CHECK(a.qkv.dtype == DType::kBF16);
    const InputRef in = NormInput(a.x, a.gain, {}, a.epsilon);
    OutputRef out = Output(a.qkv, OutputKind::kStore);
    // Half-split pairs lie in different tiles, and an int8 row needs the maximum over its head: both take their own
    // phase, but for the few int8 rows of an attention that comes next, which makes them itself.
    const bool few = !plan.long_call && plan.most_rows <= cuda_kernels::kMostOwnRows;
    const bool bf16_or_later = cache.scale == nullptr || (few && AttentionFollows(a.plan, a.layer));
    if (a.pairing == backend::RopePairing::kAdjacent && bf16_or_later && a.qkv.stride % 2 == 0) {
      out.kind = OutputKind::kQkv;
      out.heads = a.shape.heads;
      out.cos = plan.cos;
      out.sin = plan.sin;
      out.row_slot = plan.slot;
      out.row_index = plan.index;
      out.cache = cache;
      out.store_cache = plan.long_call || cache.scale != nullptr ? 0 : 1;
      quantize_in_attention_ = cache.scale != nullptr;
      PushLinear(weight, in, out, plan.rows);
      return;
    }
    PushLinear(weight, in, out, plan.rows);
    (*this)(backend::RopeStoreKvArgs{
        .plan = a.plan, .layer = a.layer, .shape = a.shape, .pairing = a.pairing, .qkv = a.qkv});
  }

  void operator()(const backend::AttentionOutputArgs& a) {
    (*this)(backend::WindowAttentionArgs{
        .plan = a.plan, .layer = a.layer, .shape = a.shape, .qkv = a.qkv, .out = a.attended});
    PushLinear(static_cast<const CudaLinear*>(a.output_weight)->weight(), PlainInput(a.attended),
               Output(a.x, OutputKind::kAddTo), Plan(a.plan).rows);
  }

  void operator()(const backend::FeedForwardInputArgs& a) {
    PushPair(*a.gate_up, NormInput(a.x, a.gain, a.scales, a.epsilon), NormRows(a.x, a.scales), a.hidden);
  }

  void operator()(const backend::HeadArgs& a) {
    const PlanPointers& plan = Plan(PlanId::kDecoder);
    const auto& weight = static_cast<const CudaLinear*>(a.weight)->weight();
    VOXRT_CHECK(a.token.stride == 1 && a.token.rows >= plan.head_rows);
    InputRef in = NormInput(a.x, a.gain, {}, a.epsilon);
    in.row_map = plan.head_row;
    OutputRef out;
    if (!a.logits.empty()) {
      VOXRT_CHECK(a.logits.dtype == DType::kF32 && a.logits.cols == weight.rows && a.logits.rows >= plan.head_rows);
      out = Output(a.logits, OutputKind::kHead);
    }
    out.kind = OutputKind::kHead;
    out.best = c_.head_best;
    out.counter = c_.head_counter;
    out.token = static_cast<int32_t*>(a.token.data);
    out.slot_token = c_.slot_tokens;
    out.head_row = plan.head_row;
    out.row_slot = plan.slot;
    out.host_token = c_.host_tokens;
    out.host_flag = c_.host_flag;
    out.sequence = c_.head_sequence;
    PushLinear(weight, in, out, plan.head_rows);
  }

  void operator()(const GeluOp& op) { PushElementwise(op.args, 0); }
  void operator()(const AddOp& op) { PushElementwise(op.args, 1); }
  void operator()(const CopyOp& op) { PushElementwise(op.args, 2); }
  void operator()(const TapOp& op) { phases_.push_back({op}); }

 private:
  const PlanPointers& Plan(PlanId id) const { return c_.plans[static_cast<size_t>(id)]; }
  cuda_kernels::CacheRef Cache(PlanId id, int layer, const backend::AttentionShape& shape) {
    const cuda_kernels::CacheRef ref = c_.cache(id, layer);
    VOXRT_CHECK(ref.kv_heads == shape.kv_heads && ref.head_dim == shape.head_dim);
    VOXRT_CHECK(shape.heads / shape.kv_heads <= 16);
    return ref;
  }

  static InputRef PlainInput(const View& x) {
    InputRef in;
    in.element = ElementOf(x);
    in.data = x.data;
    in.stride = x.stride;
    in.aligned = x.cols % 8 == 0 && x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 ? 1 : 0;
    return in;
  }
  bool AttentionFollows(PlanId plan, int layer) const {
    if (next_ == nullptr) return false;
    if (const auto* o = std::get_if<backend::AttentionOutputArgs>(next_)) return o->plan == plan && o->layer == layer;
    const auto* w = std::get_if<backend::WindowAttentionArgs>(next_);
    return w != nullptr && w->plan == plan && w->layer == layer;
  }
  // Rows beyond the plan have no delay.
  int64_t NormRows(const View& x, const View& scales) const {
    return scales.empty() ? x.rows : std::min(x.rows, Plan(PlanId::kDecoder).rows);
  }
  InputRef NormInput(const View& x, const View& gain, const View& scales, float epsilon) const {
    InputRef in = PlainInput(x);
    in.kind = InputKind::kNorm;
    in.gain = static_cast<const float*>(gain.data);
    in.epsilon = epsilon;
    if (!scales.empty()) {
      VOXRT_CHECK(scales.stride == scales.cols);
      in.scales = static_cast<const float*>(scales.data);
      in.scale_row = Plan(PlanId::kDecoder).delay_row;
    }
    return in;
  }
  static OutputRef Output(const View& out, OutputKind kind) {
    OutputRef ref;
    ref.kind = kind;
    ref.element = ElementOf(out);
    ref.data = out.data;
    ref.stride = out.stride;
    return ref;
  }
  void NeedOwn(int64_t rows, const backend::AttentionShape& shape) {
    needs_->own_codes = std::max<int64_t>(needs_->own_codes, rows * 2 * shape.kv_heads * shape.head_dim);
    needs_->own_scales = std::max<int64_t>(needs_->own_scales, rows * 2 * shape.kv_heads);
  }

  // Phases of one wave take small and large places on the SMs in turn (kernels/shapes.h).
  void GivePlaces() {
    const int large = std::min(cuda_kernels::kLargePhaseBytes, c_.device.shared_limit);
    const int small = std::min(cuda_kernels::kSmallPhaseBytes, c_.device.shared_limit);
    bool is_large = false;
    for (Phase& phase : phases_) {
      const int place = is_large ? large : small;
      if (auto* l = std::get_if<LinearPhase>(&phase.body)) {
        if (l->plan.kernel == cuda_kernels::LinearKernel::kSmall)
          l->plan.shared_bytes = std::max(l->plan.shared_bytes, place);
      } else if (auto* a = std::get_if<AttentionPhase>(&phase.body)) {
        const int blocks = a->params.cache.kv_heads * a->plan.blocks_per_tile * a->params.tiles;
        if (blocks <= c_.device.sm_count) a->plan.shared_bytes = std::max(a->plan.shared_bytes, place);
      } else if (auto* i = std::get_if<cuda_kernels::IngestParams>(&phase.body)) {
        if (i->rows <= cuda_kernels::kSmallRows) i->shared_bytes = place;
      } else if (auto* e = std::get_if<cuda_kernels::EmbedParams>(&phase.body)) {
        if (e->rows <= cuda_kernels::kSmallRows) e->shared_bytes = place;
      }
      is_large = !is_large;
    }
  }
  // Each phase asks for the weights of the next one: by the time that its blocks fill their rings, L2 has them. Large
  // weights would push in front of what the phases between are waiting for: their own phase asks for them, as far as L2
  // holds them.
  void LookAhead() {
    constexpr int64_t kMostAhead = int64_t{16} << 20;
    constexpr int64_t kMostOwn = int64_t{22} << 20;
    auto weights_of = [&](size_t i) -> cuda_kernels::PrefetchRef {
      if (i >= phases_.size()) return {};
      const auto* linear = std::get_if<LinearPhase>(&phases_[i].body);
      if (linear == nullptr || linear->plan.kernel != cuda_kernels::LinearKernel::kSmall) return {};
      const cuda_kernels::WeightRef& w = linear->params.weight;
      return {w.data, cuda_kernels::WeightBytes(w.format, w.tiles, w.units)};
    };
    for (size_t i = 0; i < phases_.size(); ++i) {
      cuda_kernels::PrefetchRef prefetch = weights_of(i + 1);
      const cuda_kernels::PrefetchRef own = weights_of(i);
      if (prefetch.bytes > kMostAhead) prefetch = {};
      if (own.bytes > kMostAhead) prefetch = {own.data, std::min(own.bytes, kMostOwn)};
      if (auto* l = std::get_if<LinearPhase>(&phases_[i].body)) l->params.prefetch = prefetch;
      if (auto* a = std::get_if<AttentionPhase>(&phases_[i].body)) a->params.prefetch = prefetch;
    }
  }
  unsigned long long* Trace() const {  // of the next phase
    if (c_.trace == nullptr) return nullptr;
    return c_.trace + phases_.size() * cuda_kernels::kTraceMarks * cuda_kernels::kTraceBlocks;
  }
  // A phase without rows has nothing to launch.
  static int64_t RowsOf(const LinearPhase& p) { return p.params.rows; }
  static int64_t RowsOf(const AttentionPhase& p) { return p.params.tiles; }
  template <typename Params>
  static int64_t RowsOf(const Params& p) {
    return p.rows;
  }
  template <typename Body>
  void Push(Body body) {
    if (RowsOf(body) == 0) return;
    if constexpr (std::is_same_v<Body, LinearPhase> || std::is_same_v<Body, AttentionPhase>) {
      body.params.trace = Trace();
    } else if constexpr (std::is_same_v<Body, cuda_kernels::IngestParams>) {
      body.trace = Trace();
    }
    phases_.push_back({std::move(body)});
  }
  void PushElementwise(const backend::ElementwiseArgs& a, int operation) {
    cuda_kernels::ElementwiseParams p;
    p.operation = operation;
    p.x = a.x.data;
    p.x_stride = a.x.stride;
    p.x_element = ElementOf(a.x);
    p.out = a.out.data;
    p.out_stride = a.out.stride;
    p.out_element = ElementOf(a.out);
    p.rows = Int(a.x.rows);
    p.cols = Int(a.x.cols);
    Push(p);
  }
  void PushAppend(const backend::WindowAttentionArgs& a, const PlanPointers& plan,
                  const cuda_kernels::AttentionParams& attention) {
    cuda_kernels::AppendParams p;
    p.qkv = a.qkv.data;
    p.stride = a.qkv.stride;
    p.rows = Int(plan.rows);
    p.heads = a.shape.heads;
    p.row_slot = plan.slot;
    p.row_index = plan.index;
    p.row_begin = plan.begin;
    p.row_count = plan.count;
    p.cache = attention.cache;
    p.own_codes = attention.own_codes;
    p.own_scale = attention.own_scale;
    Push(p);
  }
  void PushPair(const backend::PreparedLinear& weight, const InputRef& in, int64_t rows, const View& out) {
    PushLinear(static_cast<const CudaLinear&>(weight).weight(), in, Output(out, OutputKind::kSwiGlu), rows);
  }
  void PushLinear(const cuda_kernels::WeightRef& weight, const InputRef& in, const OutputRef& out, int64_t rows) {
    LinearPhase phase;
    LinearParams& p = phase.params;
    p.weight = weight;
    p.input = in;
    p.output = out;
    p.rows = Int(rows);
    phase.plan = cuda_kernels::PlanLinear(p, c_.device);
    if (phase.plan.kernel != cuda_kernels::LinearKernel::kSmall) {
      MakeWideInput(&p);
    } else if (in.kind == InputKind::kNorm && !in.aligned) {
      Ingest(&p);
    }
    needs_->workspace_floats = std::max(needs_->workspace_floats, phase.plan.workspace_floats);
    needs_->counters = std::max<int64_t>(needs_->counters, phase.plan.split_counters);
    p.workspace = c_.workspace;
    p.split_counter = c_.counters;
    Push(phase);
  }
  // The kernels of more rows read bf16 rows of whole units; whatever else an input is takes a phase of its own.
  void MakeWideInput(LinearParams* p) {
    const InputRef& in = p->input;
    const int padded = p->weight.units * cuda_kernels::kUnitCols;
    if (in.kind == InputKind::kPlain && in.element == Element::kBf16 && p->weight.cols == padded && in.aligned) return;
    Ingest(p);
  }
  void Ingest(LinearParams* p) {
    const InputRef& in = p->input;
    const int padded = p->weight.units * cuda_kernels::kUnitCols;
    cuda_kernels::IngestParams ingest;
    ingest.input = in;
    if (in.kind == InputKind::kConv) {
      needs_->counters = std::max<int64_t>(needs_->counters, Plan(PlanId::kEncoder).rows);
      ingest.input.counter = c_.counters;
    }
    ingest.rows = p->rows;
    ingest.cols = p->weight.cols;
    ingest.padded_cols = padded;
    ingest.out = c_.ingest;
    ingest.out_stride = padded;
    needs_->ingest_bytes = std::max<int64_t>(needs_->ingest_bytes, int64_t{p->rows} * padded * 2);
    Push(ingest);
    p->input = {};
    p->input.element = Element::kBf16;
    p->input.data = c_.ingest;
    p->input.stride = padded;
    p->input.aligned = p->weight.cols % 8 == 0 ? 1 : 0;
  }

  const LoweringContext& c_;
  const Op* next_ = nullptr;
  bool quantize_in_attention_ = false;  // the attention that comes next
  LoweringNeeds* needs_;
  std::vector<Phase> phases_;
};

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

const char* FormatText(cuda_kernels::WeightFormat format) {
  switch (format) {
    case cuda_kernels::WeightFormat::kInt4G128:
      return "int4 g128";
    case cuda_kernels::WeightFormat::kInt4G32:
      return "int4 g32";
    case cuda_kernels::WeightFormat::kInt8Row:
      return "int8 row";
    case cuda_kernels::WeightFormat::kInt8G32:
      return "int8 g32";
    case cuda_kernels::WeightFormat::kBf16:
      return "bf16";
  }
  return "?";
}

std::string DescribeLinear(const LinearPhase& phase) {
  constexpr const char* kKernels[] = {"small", "wide", "hopper"};
  constexpr const char* kInputs[] = {"plain", "norm", "conv"};
  constexpr const char* kOutputs[] = {"store", "gelu", "add", "swiglu", "qkv", "head"};
  const LinearParams& p = phase.params;
  const cuda_kernels::LinearPlan& plan = phase.plan;
  std::string text = fmt::format("linear {} {}x{} {} rows {} {}->{}", kKernels[static_cast<int>(plan.kernel)],
                                 p.weight.rows, p.weight.cols, FormatText(p.weight.format), p.rows,
                                 kInputs[static_cast<int>(p.input.kind)], kOutputs[static_cast<int>(p.output.kind)]);
  if (plan.kernel == cuda_kernels::LinearKernel::kSmall) {
    return text + fmt::format(" blocks {} tiles {} batch {} slots {} shared {}", plan.blocks, plan.tiles_per_block,
                              plan.batch_tiles, plan.slots, plan.shared_bytes);
  }
  return text + fmt::format(" blocks {} warps {} items {} groups {} cluster {} columns {} shared {}", plan.blocks,
                            plan.tiles_per_block, plan.wide.items, plan.wide.groups, plan.wide.cluster, plan.columns,
                            plan.shared_bytes);
}

}  // namespace

std::vector<Phase> Lower(const std::vector<Op>& ops, const LoweringContext& context, LoweringNeeds* needs) {
  Lowering lowering(context, needs);
  for (size_t i = 0; i < ops.size(); ++i) {
    lowering.SetNext(i + 1 < ops.size() ? &ops[i + 1] : nullptr);
    std::visit(lowering, ops[i]);
  }
  return lowering.Take();
}

std::string Describe(const Phase& phase) {
  return std::visit(
      Overloaded{
          [](const LinearPhase& l) { return DescribeLinear(l); },
          [](const AttentionPhase& a) {
            return fmt::format("attention heads {}/{} x{} window {} tiles {} blocks {} groups {} stages {} shared {}{}",
                               a.params.heads, a.params.cache.kv_heads, a.params.cache.head_dim, a.params.window,
                               a.params.tiles, a.params.cache.kv_heads * a.plan.blocks_per_tile, a.plan.groups,
                               a.plan.stages, a.plan.shared_bytes, a.params.own_rows ? " own rows" : "");
          },
          [](const cuda_kernels::IngestParams& p) {
            return fmt::format("{} {} rows {}", p.input.kind == InputKind::kNorm ? "norm" : "ingest", p.cols, p.rows);
          },
          [](const cuda_kernels::EmbedParams& p) { return fmt::format("embed {} rows {}", p.table.cols, p.rows); },
          [](const cuda_kernels::RopeParams& p) {
            return fmt::format("rope heads {} rows {}", p.heads + 2 * p.cache.kv_heads, p.rows);
          },
          [](const cuda_kernels::AppendParams& p) { return fmt::format("append rows {}", p.rows); },
          [](const cuda_kernels::ElementwiseParams& p) {
            return fmt::format("elementwise {}x{} operation {}", p.rows, p.cols, p.operation);
          },
          [](const cuda_kernels::ArgMaxParams& p) { return fmt::format("argmax {} rows {}", p.cols, p.rows); },
          [](const TapOp& t) { return "tap " + t.name; },
      },
      phase.body);
}

cudaError_t LaunchPhase(const Phase& phase, const cuda_kernels::LaunchContext& context) {
  return std::visit(
      Overloaded{
          [&](const LinearPhase& l) { return cuda_kernels::LaunchLinear(l.params, l.plan, context); },
          [&](const AttentionPhase& a) { return cuda_kernels::LaunchAttention(a.params, a.plan, context); },
          [&](const cuda_kernels::IngestParams& p) { return cuda_kernels::LaunchIngest(p, context); },
          [&](const cuda_kernels::EmbedParams& p) { return cuda_kernels::LaunchEmbed(p, context); },
          [&](const cuda_kernels::RopeParams& p) { return cuda_kernels::LaunchRope(p, context); },
          [&](const cuda_kernels::AppendParams& p) { return cuda_kernels::LaunchAppend(p, context); },
          [&](const cuda_kernels::ElementwiseParams& p) { return cuda_kernels::LaunchElementwise(p, context); },
          [&](const cuda_kernels::ArgMaxParams& p) { return cuda_kernels::LaunchArgMax(p, context); },
          [](const TapOp&) { return cudaSuccess; },
      },
      phase.body);
}

}  // namespace voxrt::cuda
