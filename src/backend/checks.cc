// Implementation of checks.h. One condition a CHECK: the line number tells which rule was broken.
#include "backend/checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"

namespace voxrt::backend {
namespace {

using quant::DType;
using quant::FormatKind;

constexpr int64_t kMaxBytes = int64_t{1} << 47;  // more than any address space we run in

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

Status Invalid(const std::string& name, const std::string& message) {
  return Status(StatusCode::kInvalidModel, name + ": " + message);
}

// a * b, or kMaxBytes when that or more.
int64_t SaturatingProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return kMaxBytes;
  return std::min(product, kMaxBytes);
}

Status ValidateBlock(const std::string& name, const LinearBlock& block) {
  const quant::HostLinear& w = block.weight;
  const std::string shape = "[" + std::to_string(w.rows) + ", " + std::to_string(w.cols) + "] " + FormatName(w.format);
  if (w.rows < 1 || w.cols < 1 || w.data == nullptr) return Invalid(name, "weight " + shape + " is empty");
  if (SaturatingProduct(w.rows, w.cols) >= kMaxBytes / 4) return Invalid(name, "weight " + shape + " is too large");
  if (!block.bias.empty() && static_cast<int64_t>(block.bias.size()) != w.rows) {
    return Invalid(name,
                   "bias has " + std::to_string(block.bias.size()) + " values, expected " + std::to_string(w.rows));
  }
  if (w.format.kind == FormatKind::kFloat) {
    return IsFloat(w.format.dtype) ? Status() : Invalid(name, "element type must be F32, F16 or BF16");
  }
  if (w.scale == nullptr) return Invalid(name, "weight " + shape + " has no scales");
  const bool per_row = w.format.group == 0 && w.format.kind == FormatKind::kInt8;
  if (!per_row && (w.format.group < 1 || w.cols % w.format.group != 0)) {
    return Invalid(name, "weight " + shape + ": columns must be a multiple of the group");
  }
  if (w.format.kind == FormatKind::kInt4 && (w.cols % 32 != 0 || w.format.group % 32 != 0)) {
    return Invalid(name, "weight " + shape + ": columns and group must be multiples of 32");
  }
  if (w.format.kind == FormatKind::kInt4Tile && (w.rows % 8 != 0 || w.cols % 128 != 0 || w.format.group % 32 != 0)) {
    return Invalid(name, "weight " + shape + ": tile order needs rows % 8 = 0, columns % 128 = 0, group % 32 = 0");
  }
  return Status();
}

Status ValidateKv(const std::string& name, const KvSpec& kv) {
  if (kv.layers == 0) return Status();  // a state without this stack
  if (kv.layers < 0 || kv.kv_heads < 1 || kv.head_dim < 2 || kv.head_dim % 2 != 0) {
    return Invalid(name, "needs layers >= 0, kv_heads >= 1 and an even head_dim");
  }
  if (kv.window < 1 || kv.max_rows < 1) return Invalid(name, "needs window >= 1 and max_rows >= 1");
  if (kv.dtype != DType::kF32 && kv.dtype != DType::kBF16 && kv.dtype != DType::kI8) {
    return Status(StatusCode::kInvalidArgument,
                  name + ": cache type must be fp32, bf16 or int8, found " + std::string(DTypeName(kv.dtype)));
  }
  const int64_t row = SaturatingProduct(SaturatingProduct(kv.kv_heads, kv.head_dim), int64_t{8} * kv.layers);
  if (kv.window >= kMaxBytes || kv.max_rows >= kMaxBytes || SaturatingProduct(row, MinRingRows(kv)) >= kMaxBytes) {
    return Status(StatusCode::kResourceExhausted,
                  name + ": a ring of " + std::to_string(kv.window) + " rows is too large");
  }
  return Status();
}

void CheckView(const View& view) {
  VOXRT_CHECK(view.data != nullptr);
  VOXRT_CHECK(view.rows >= 0);
  VOXRT_CHECK(view.cols >= 1);
  VOXRT_CHECK(view.stride >= view.cols);
}

}  // namespace

int64_t MinRingRows(const KvSpec& spec) { return spec.window - 1 + spec.max_rows; }

Status Validate(const LinearSpec& spec) {
  if (spec.blocks.empty()) return Invalid(spec.name, "no weight");
  int64_t rows = 0;
  for (const LinearBlock& block : spec.blocks) {
    VOXRT_RETURN_IF_ERROR(ValidateBlock(spec.name, block));
    if (block.weight.cols != spec.blocks[0].weight.cols) {
      return Invalid(spec.name, "blocks have " + std::to_string(block.weight.cols) + " and " +
                                    std::to_string(spec.blocks[0].weight.cols) + " columns, expected equal");
    }
    if (block.weight.rows >= kMaxBytes || rows >= kMaxBytes) return Invalid(spec.name, "too many rows");
    rows += block.weight.rows;
  }
  const bool pair = spec.blocks.size() == 2 && spec.blocks[0].weight.rows == spec.blocks[1].weight.rows;
  if (spec.role == LinearRole::kGateUp && !pair)
    return Invalid(spec.name, "gate and up must be two blocks of equal shape");
  return Status();
}

Status Validate(const ConvSpec& spec) {
  if (spec.weight == nullptr || spec.out_channels < 1 || spec.in_channels < 1)
    return Invalid(spec.name, "empty weight");
  if (!IsFloat(spec.dtype)) return Invalid(spec.name, "element type must be F32, F16 or BF16");
  if (spec.stride != 1 && spec.stride != 2) {
    return Invalid(spec.name, "stride must be 1 or 2, found " + std::to_string(spec.stride));
  }
  if (static_cast<int64_t>(spec.bias.size()) != spec.out_channels) {
    return Invalid(spec.name, "bias has " + std::to_string(spec.bias.size()) + " values, expected " +
                                  std::to_string(spec.out_channels));
  }
  return Status();
}

Status Validate(const SessionStateSpec& spec) {
  if (spec.max_sessions < 1) return Status(StatusCode::kInvalidArgument, "session state needs at least one slot");
  VOXRT_RETURN_IF_ERROR(ValidateKv("encoder cache", spec.encoder));
  VOXRT_RETURN_IF_ERROR(ValidateKv("decoder cache", spec.decoder));
  for (int64_t channels : spec.conv_channels) {
    if (channels < 0 || channels >= (1 << 24)) return Invalid("convolution tail", "channels must be 0 .. 2^24");
  }
  return Status();
}

Status ValidateAllocation(int64_t rows, int64_t cols, DType dtype) {
  if (rows < 1 || cols < 1) {
    return Status(StatusCode::kInvalidArgument, "cannot allocate [" + std::to_string(rows) + ", " +
                                                    std::to_string(cols) + "], expected at least one row and column");
  }
  const int64_t bytes = SaturatingProduct(SaturatingProduct(rows, cols), static_cast<int64_t>(DTypeBytes(dtype)));
  if (bytes >= kMaxBytes) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate [" + std::to_string(rows) + ", " + std::to_string(cols) + "]: too large");
  }
  return Status();
}

void CheckPlan(PlanId id, const BatchPlan& plan, const SessionStateSpec& state) {
  int32_t next_row = 0;
  std::vector<bool> seen(static_cast<size_t>(state.max_sessions), false);
  for (const PlanGroup& group : plan.groups) {
    VOXRT_CHECK(group.row_begin == next_row);
    VOXRT_CHECK(group.row_count >= 1);
    VOXRT_CHECK(group.row_count <= plan.rows - next_row);
    VOXRT_CHECK(group.first_index >= 0);
    VOXRT_CHECK(group.slot >= 0 && group.slot < state.max_sessions);
    VOXRT_CHECK(!seen[static_cast<size_t>(group.slot)]);
    seen[static_cast<size_t>(group.slot)] = true;
    next_row += group.row_count;
  }
  VOXRT_CHECK(next_row == plan.rows);

  const auto rows = static_cast<size_t>(plan.rows);
  VOXRT_CHECK(plan.rope_cos.size() == plan.rope_sin.size());
  VOXRT_CHECK(rows == 0 ? plan.rope_cos.empty() : plan.rope_cos.size() % rows == 0);
  if (id == PlanId::kEncoder) {
    VOXRT_CHECK(plan.token.empty() && plan.audio_row.empty() && plan.delay_row.empty() && plan.head_rows.empty());
    return;
  }
  VOXRT_CHECK(plan.token.empty() || plan.token.size() == rows);
  VOXRT_CHECK(plan.audio_row.empty() || plan.audio_row.size() == rows);
  VOXRT_CHECK(plan.delay_row.empty() || plan.delay_row.size() == rows);
  for (int32_t token : plan.token) VOXRT_CHECK(token >= 0 || token == BatchPlan::kDeviceToken);
  for (int32_t row : plan.audio_row) VOXRT_CHECK(row >= 0);
  for (int32_t row : plan.delay_row) VOXRT_CHECK(row >= 0);
  int32_t previous = -1;
  for (int32_t row : plan.head_rows) {
    VOXRT_CHECK(row > previous && row < plan.rows);
    previous = row;
  }
}

OpChecker::OpChecker(const StreamSpec& spec, const SessionStateSpec& state, std::span<const DType> activation_dtypes)
    : spec_(spec), state_(state), activation_dtypes_(activation_dtypes.begin(), activation_dtypes.end()) {}

void OpChecker::SetPlan(PlanId id, const BatchPlan& plan) {
  CheckPlan(id, plan, state_);
  VOXRT_CHECK(plan.rows <= (id == PlanId::kEncoder ? spec_.max_encoder_rows : spec_.max_decoder_rows));
  PlanFacts facts;
  const auto largest = [](const std::vector<int32_t>& values) {
    return values.empty() ? -1 : *std::max_element(values.begin(), values.end());
  };
  facts.rows = plan.rows;
  facts.rope_cols = plan.rows == 0 ? 0 : static_cast<int64_t>(plan.rope_cos.size()) / plan.rows;
  facts.heads_wanted = static_cast<int64_t>(plan.head_rows.size());
  facts.max_token = largest(plan.token);
  facts.max_audio_row = largest(plan.audio_row);
  facts.max_delay_row = largest(plan.delay_row);
  facts.has_tokens = !plan.token.empty() || plan.rows == 0;
  facts.has_delays = !plan.delay_row.empty() || plan.rows == 0;
  facts_[static_cast<size_t>(id)] = facts;
}

bool OpChecker::IsActivation(const View& view) const {
  return view.dtype == DType::kF32 ||
         std::find(activation_dtypes_.begin(), activation_dtypes_.end(), view.dtype) != activation_dtypes_.end();
}

void OpChecker::CheckActivation(const View& view, int64_t cols) const {
  CheckView(view);
  VOXRT_CHECK(IsActivation(view));
  VOXRT_CHECK(view.cols == cols);
}

void OpChecker::CheckResidual(const View& view, int64_t cols) const {
  CheckView(view);
  VOXRT_CHECK(view.dtype == DType::kF32);
  VOXRT_CHECK(view.cols == cols);
}

void OpChecker::CheckAttention(PlanId plan, int layer, const AttentionShape& shape, const View& qkv) const {
  const KvSpec& cache = kv(plan);
  VOXRT_CHECK(layer >= 0 && layer < cache.layers);
  VOXRT_CHECK(shape.kv_heads == cache.kv_heads);
  VOXRT_CHECK(shape.head_dim == cache.head_dim);
  VOXRT_CHECK(shape.heads >= shape.kv_heads && shape.heads % shape.kv_heads == 0);
  CheckActivation(qkv, int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim);
  VOXRT_CHECK(qkv.rows >= facts(plan).rows);
}

void OpChecker::Check(const RunKey& key) const {
  VOXRT_CHECK(key.encoder_rows >= 0 && key.encoder_rows <= spec_.max_encoder_rows);
  VOXRT_CHECK(key.decoder_rows >= 0 && key.decoder_rows <= spec_.max_decoder_rows);
  VOXRT_CHECK(key.head_rows >= 0 && key.head_rows <= key.decoder_rows);
  if (key.encoder_rows > 0) VOXRT_CHECK(facts(PlanId::kEncoder).rows <= key.encoder_rows);
  if (key.decoder_rows > 0) VOXRT_CHECK(facts(PlanId::kDecoder).rows <= key.decoder_rows);
  if (key.decoder_rows > 0) VOXRT_CHECK(facts(PlanId::kDecoder).heads_wanted <= key.head_rows);
}

void OpChecker::Check(const EmbedArgs& args) const {
  const PlanFacts& plan = facts(PlanId::kDecoder);
  VOXRT_CHECK(args.table != nullptr);
  CheckResidual(args.out, args.table->cols());
  VOXRT_CHECK(args.out.rows >= plan.rows);
  VOXRT_CHECK(plan.has_tokens);
  VOXRT_CHECK(plan.max_token < args.table->rows());
  if (args.audio.empty()) return;
  CheckResidual(args.audio, args.table->cols());
  VOXRT_CHECK(plan.rows == 0 || plan.max_audio_row >= 0);
  VOXRT_CHECK(plan.max_audio_row < args.audio.rows);
}

void OpChecker::Check(const LinearArgs& args) const {
  VOXRT_CHECK(args.weight != nullptr);
  CheckActivation(args.x, args.weight->cols());
  CheckActivation(args.out, args.weight->rows());
  VOXRT_CHECK(args.out.rows == args.x.rows);
  if (args.epilogue == Epilogue::kAddTo) VOXRT_CHECK(args.out.dtype == DType::kF32);
}

void OpChecker::Check(const LinearPairArgs& args) const {
  VOXRT_CHECK(args.weight != nullptr);
  VOXRT_CHECK(args.weight->role() == LinearRole::kGateUp);
  CheckActivation(args.x, args.weight->cols());
  CheckActivation(args.out, args.weight->rows() / 2);
  VOXRT_CHECK(args.out.rows == args.x.rows);
}

void OpChecker::Check(const RmsNormArgs& args) const {
  CheckView(args.x);
  CheckResidual(args.x, args.x.cols);
  CheckResidual(args.gain, args.x.cols);
  VOXRT_CHECK(args.gain.rows == 1);
  VOXRT_CHECK(args.epsilon > 0.0f);
  CheckActivation(args.out, args.x.cols);
  VOXRT_CHECK(args.out.rows == args.x.rows);
  if (args.scales.empty()) return;
  const PlanFacts& plan = facts(PlanId::kDecoder);
  CheckResidual(args.scales, args.x.cols);
  VOXRT_CHECK(args.x.rows >= plan.rows);
  VOXRT_CHECK(plan.has_delays);
  VOXRT_CHECK(plan.max_delay_row < args.scales.rows);
}

void OpChecker::Check(const RopeStoreKvArgs& args) const {
  CheckAttention(args.plan, args.layer, args.shape, args.qkv);
  VOXRT_CHECK(facts(args.plan).rows == 0 || facts(args.plan).rope_cols == args.shape.head_dim / 2);
}

void OpChecker::Check(const WindowAttentionArgs& args) const {
  CheckAttention(args.plan, args.layer, args.shape, args.qkv);
  CheckActivation(args.out, int64_t{args.shape.heads} * args.shape.head_dim);
  VOXRT_CHECK(args.out.rows >= facts(args.plan).rows);
}

void OpChecker::Check(const CausalConv1dArgs& args) const {
  VOXRT_CHECK(args.index == 0 || args.index == 1);
  VOXRT_CHECK(args.weight != nullptr);
  VOXRT_CHECK(args.weight->tail_rows() == (args.index == 0 ? 2 : 1));  // what the session state keeps for this index
  VOXRT_CHECK(args.weight->in_channels() == state_.conv_channels[args.index]);
  VOXRT_CHECK(args.rows_per_plan_row >= 1 && args.rows_per_plan_row % args.weight->stride() == 0);
  const int64_t rows = facts(PlanId::kEncoder).rows * args.rows_per_plan_row;
  CheckActivation(args.x, args.weight->in_channels());
  CheckActivation(args.out, args.weight->out_channels());
  VOXRT_CHECK(args.x.rows >= rows);
  VOXRT_CHECK(args.out.rows >= rows / args.weight->stride());
}

void OpChecker::CheckGelu(const ElementwiseArgs& args) const {
  CheckView(args.x);
  VOXRT_CHECK(IsActivation(args.x));
  CheckActivation(args.out, args.x.cols);
  VOXRT_CHECK(args.out.rows == args.x.rows);
}

void OpChecker::CheckAdd(const ElementwiseArgs& args) const { CheckGelu(args); }

void OpChecker::CheckCopy(const ElementwiseArgs& args) const { CheckGelu(args); }

void OpChecker::Check(const ArgMaxArgs& args) const {
  CheckView(args.logits);
  CheckResidual(args.logits, args.logits.cols);
  CheckView(args.out);
  VOXRT_CHECK(args.out.dtype == DType::kI32 && args.out.cols == 1);
  VOXRT_CHECK(args.logits.rows >= facts(PlanId::kDecoder).heads_wanted);
  VOXRT_CHECK(args.out.rows >= facts(PlanId::kDecoder).heads_wanted);
}

void OpChecker::Check(const AttentionInputArgs& args) const {
  Check(RmsNormArgs{.x = args.x, .gain = args.gain, .scales = {}, .epsilon = args.epsilon, .out = args.normed});
  Check(LinearArgs{.x = args.normed, .weight = args.qkv_weight, .out = args.qkv});
  Check(RopeStoreKvArgs{
      .plan = args.plan, .layer = args.layer, .shape = args.shape, .pairing = args.pairing, .qkv = args.qkv});
}

void OpChecker::Check(const AttentionOutputArgs& args) const {
  Check(WindowAttentionArgs{
      .plan = args.plan, .layer = args.layer, .shape = args.shape, .qkv = args.qkv, .out = args.attended});
  Check(LinearArgs{.x = args.attended, .weight = args.output_weight, .out = args.x, .epilogue = Epilogue::kAddTo});
}

void OpChecker::Check(const FeedForwardInputArgs& args) const {
  Check(
      RmsNormArgs{.x = args.x, .gain = args.gain, .scales = args.scales, .epsilon = args.epsilon, .out = args.normed});
  Check(LinearPairArgs{.x = args.normed, .weight = args.gate_up, .out = args.hidden});
}

void OpChecker::Check(const HeadArgs& args) const {
  const PlanFacts& plan = facts(PlanId::kDecoder);
  VOXRT_CHECK(args.weight != nullptr);
  CheckResidual(args.x, args.weight->cols());
  VOXRT_CHECK(args.x.rows >= plan.rows);
  CheckResidual(args.gain, args.weight->cols());
  VOXRT_CHECK(args.gain.rows == 1);
  VOXRT_CHECK(args.epsilon > 0.0f);
  CheckActivation(args.normed, args.weight->cols());
  VOXRT_CHECK(args.normed.rows >= plan.heads_wanted);
  CheckView(args.token);
  VOXRT_CHECK(args.token.dtype == DType::kI32 && args.token.cols == 1);
  VOXRT_CHECK(args.token.rows >= plan.heads_wanted);
  if (args.logits.empty()) return;
  CheckResidual(args.logits, args.weight->rows());
  VOXRT_CHECK(args.logits.rows >= plan.heads_wanted);
}

void OpChecker::CheckClone(int from, int to, int64_t encoder_end, int64_t decoder_end) const {
  VOXRT_CHECK(from >= 0 && from < state_.max_sessions);
  VOXRT_CHECK(to >= 0 && to < state_.max_sessions);
  VOXRT_CHECK(from != to);
  VOXRT_CHECK(encoder_end >= 0 && decoder_end >= 0);
}

}  // namespace voxrt::backend
