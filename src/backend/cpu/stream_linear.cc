// Linear layers and what is fused with them: the norm before, activation, residual or rotary embedding behind.
//
// Weight rows are split over the workers; each worker takes all activation rows, so an operation is one phase. Few rows
// are normalised by every worker for itself, which is cheaper than a barrier.
#include <algorithm>

#include "backend/compose.h"
#include "backend/cpu/split.h"
#include "backend/cpu/stream.h"

namespace voxrt::backend::cpu {
namespace {

constexpr int64_t kPrivateRows = 16;  // up to so many rows each worker normalises for itself

float* RowF32(const View& view, int64_t row) { return reinterpret_cast<float*>(view.row_bytes(row)); }

// The part of stacked rows [range) that lies in `block`, counted from the block's first row.
Range Within(const Range& range, const CpuLinear::Block& block) {
  return {std::clamp<int64_t>(range.begin - block.row_begin, 0, block.weight.rows),
          std::clamp<int64_t>(range.end - block.row_begin, 0, block.weight.rows)};
}

}  // namespace

void CpuStream::NormRow(const Input& input, int64_t row, float* out) const {
  const int64_t source = input.row_of != nullptr ? input.row_of[row] : row;
  const float* scale = nullptr;
  if (!input.scales.empty()) {
    scale = RowF32(input.scales, plan(PlanId::kDecoder).delay_row[static_cast<size_t>(source)]);
  }
  RmsNormRow(RowF32(input.x, source), RowF32(input.gain, 0), scale, input.epsilon, input.x.cols, out);
}

// One activation row in the form the weight takes: fp32, or int8 codes.
void CpuStream::PrepareRow(const Input& input, const CpuLinear& weight, int64_t row, float* normed,
                           std::byte* codes) const {
  const float* x = RowF32(input.x, row);
  if (!input.gain.empty()) {
    NormRow(input, row, normed);
    x = normed;
  }
  if (codes != nullptr) QuantizeRow(x, weight.cols(), weight.format().kind, codes);
}

// Few rows are prepared by each worker for itself, which is cheaper than a barrier; many were prepared before (row by
// row over all workers). Sets the job's activations.
void CpuStream::PrepareRows(const Input& input, const CpuLinear& weight, WorkerScratch& scratch, LinearJob& job) {
  const bool quantized = weight.format().int8_activations;
  const int64_t cols = weight.cols();
  const int64_t row_bytes = QuantizedRowBytes(cols);
  job.x = RowF32(input.x, 0);
  job.x_stride = input.x.stride;
  if (input.gain.empty() && !quantized) return;
  if (input.rows > kPrivateRows) {
    if (!input.gain.empty()) {
      job.x = RowF32(input.normed, 0);
      job.x_stride = input.normed.stride;
    }
    job.quantized = quantized ? codes_.Get<std::byte>(input.rows * row_bytes) : nullptr;
    return;
  }
  std::byte* codes = quantized ? scratch.codes.Get<std::byte>(input.rows * row_bytes) : nullptr;
  float* normed = input.gain.empty() ? nullptr : scratch.normed.Get<float>(input.rows * cols);
  for (int64_t r = 0; r < input.rows; ++r) {
    PrepareRow(input, weight, r, normed == nullptr ? nullptr : normed + r * cols,
               quantized ? codes + r * row_bytes : nullptr);
  }
  job.quantized = codes;
  if (normed == nullptr) return;
  job.x = normed;
  job.x_stride = cols;
}

void CpuStream::PrepareManyRows(const Input& input, const CpuLinear& weight) {
  const bool quantized = weight.format().int8_activations;
  if ((input.gain.empty() && !quantized) || input.rows <= kPrivateRows) return;
  const int64_t row_bytes = QuantizedRowBytes(weight.cols());
  std::byte* codes = quantized ? codes_.Get<std::byte>(input.rows * row_bytes) : nullptr;
  ForRows(input.rows, weight.cols(), [&](int64_t r) {
    PrepareRow(input, weight, r, input.gain.empty() ? nullptr : RowF32(input.normed, r),
               quantized ? codes + r * row_bytes : nullptr);
  });
}

void CpuStream::RunLinearOp(const Input& input, const CpuLinear& weight, const Output& output) {
  const int64_t rows = input.rows;
  const int64_t out_rows = output.pair ? weight.rows() / 2 : weight.rows();
  if (rows == 0) return;
  PrepareManyRows(input, weight);
  const int64_t unit = output.rope != nullptr ? output.rope->shape.head_dim : kSplitUnit;
  RunWorkers([&](int worker, int workers) {
    const Range range = Split(out_rows, unit, worker, workers);
    WorkerScratch& scratch = *scratch_[static_cast<size_t>(worker)];
    LinearJob job{.rows = rows, .out_stride = output.out.stride, .epilogue = output.epilogue};
    if (output.arg_max) {
      job.best_value = best_value_.data() + worker * rows;
      job.best_index = best_index_.data() + worker * rows;
      ResetBest(worker, rows);
    }
    if (range.begin >= range.end) return;
    PrepareRows(input, weight, scratch, job);
    const size_t blocks = output.pair ? 1 : weight.blocks().size();
    for (size_t i = 0; i < blocks; ++i) {
      const CpuLinear::Block& block = weight.blocks()[i];
      const Range part = Within(range, block);
      if (part.begin >= part.end) continue;
      SetWeight(block, job);
      if (output.pair) SetPair(weight.blocks()[1], job);
      job.n_begin = part.begin;
      job.n_end = part.end;
      job.out = output.out.empty() ? nullptr : RowF32(output.out, 0) + block.row_begin;
      job.index_base = static_cast<int32_t>(block.row_begin);
      RunLinear(job, scratch);
    }
    if (output.rope != nullptr) RopeColumns(*output.rope, range.begin / unit, range.end / unit, 0, rows);
  });
}

void CpuStream::Linear(const LinearArgs& args) {
  checker_.Check(args);
  RunLinearOp({.x = args.x, .rows = args.x.rows}, AsCpu(args.weight), {.out = args.out, .epilogue = args.epilogue});
}

void CpuStream::LinearPair(const LinearPairArgs& args) {
  checker_.Check(args);
  RunLinearOp({.x = args.x, .rows = args.x.rows}, AsCpu(args.weight), {.out = args.out, .pair = true});
}

void CpuStream::FeedForwardInput(const FeedForwardInputArgs& args) {
  checker_.Check(args);
  RunLinearOp({.x = args.x,
               .gain = args.gain,
               .scales = args.scales,
               .epsilon = args.epsilon,
               .normed = args.normed,
               .rows = args.scales.empty() ? args.x.rows : plan(PlanId::kDecoder).rows},
              AsCpu(args.gate_up), {.out = args.hidden, .pair = true});
}

void CpuStream::AttentionInput(const AttentionInputArgs& args) {
  checker_.Check(args);
  const RopeStoreKvArgs rope{
      .plan = args.plan, .layer = args.layer, .shape = args.shape, .pairing = args.pairing, .qkv = args.qkv};
  RunLinearOp(
      {.x = args.x, .gain = args.gain, .epsilon = args.epsilon, .normed = args.normed, .rows = plan(args.plan).rows},
      AsCpu(args.qkv_weight), {.out = args.qkv, .rope = &rope});
}

void CpuStream::AttentionOutput(const AttentionOutputArgs& args) { ComposeAttentionOutput(*this, args); }

}  // namespace voxrt::backend::cpu
