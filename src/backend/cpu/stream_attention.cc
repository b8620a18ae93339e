// Rotary embedding, attention and the convolution stem.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/stream.h"
#include "base/check.h"

namespace voxrt::backend::cpu {
namespace {

float* RowF32(const View& view, int64_t row) { return reinterpret_cast<float*>(view.row_bytes(row)); }

KvId KvOf(PlanId id) { return id == PlanId::kEncoder ? KvId::kEncoder : KvId::kDecoder; }

}  // namespace

// Heads [head_begin, head_end) of the stacked q, k, v heads; those of v stay as they are.
void CpuStream::RopeColumns(const RopeStoreKvArgs& args, int64_t head_begin, int64_t head_end, int64_t row_begin,
                            int64_t row_end) {
  const BatchPlan& p = plan(args.plan);
  const int64_t head_dim = args.shape.head_dim;
  const int64_t end = std::min<int64_t>(head_end, args.shape.heads + args.shape.kv_heads);
  if (head_begin >= end) return;
  for (int64_t r = row_begin; r < row_end; ++r) {
    RopeRow(RowF32(args.qkv, r) + head_begin * head_dim, end - head_begin, head_dim, args.pairing,
            p.rope_cos.data() + r * (head_dim / 2), p.rope_sin.data() + r * (head_dim / 2));
  }
}

void CpuStream::RopeStoreKv(const RopeStoreKvArgs& args) {
  checker_.Check(args);
  const int64_t heads = args.shape.heads + args.shape.kv_heads;
  const int64_t rows = plan(args.plan).rows;
  ForRows(rows, heads * args.shape.head_dim, [&](int64_t r) { RopeColumns(args, 0, heads, r, r + 1); });
}

void CpuStream::WindowAttention(const WindowAttentionArgs& args) {
  checker_.Check(args);
  const BatchPlan& p = plan(args.plan);
  const KvPages& kv = state_->kv(KvOf(args.plan));
  const AttentionShape& shape = args.shape;
  for (const PlanGroup& group : p.groups) {
    VOXRT_CHECK(state_->PagesTaken(group.slot, KvOf(args.plan)) >=
                kv.PagesFor(group.first_index + group.row_count));  // else the caller forgot SessionState::Reserve
  }
  const int64_t items = static_cast<int64_t>(p.groups.size()) * shape.kv_heads;
  std::atomic<int64_t> next{0};
  RunWorkers([&](int worker, int /*workers*/) {
    for (int64_t item = next.fetch_add(1); item < items; item = next.fetch_add(1)) {
      const PlanGroup& group = p.groups[static_cast<size_t>(item / shape.kv_heads)];
      const auto head = static_cast<int>(item % shape.kv_heads);
      const int per_head = shape.heads / shape.kv_heads;
      const int64_t head_dim = shape.head_dim;
      const float* qkv = RowF32(args.qkv, group.row_begin);
      RunAttention({.layout = kv.layout(),
                    .pages = state_->Pages(group.slot, KvOf(args.plan)),
                    .page_count = kv.page_count(),
                    .offset = kv.Offset(args.layer, head),
                    .first_index = group.first_index,
                    .rows = group.row_count,
                    .window = kv.spec().window,
                    .q = qkv + head * per_head * head_dim,
                    .k = qkv + (shape.heads + head) * head_dim,
                    .v = qkv + (shape.heads + shape.kv_heads + head) * head_dim,
                    .qkv_stride = args.qkv.stride,
                    .group = per_head,
                    .out = RowF32(args.out, group.row_begin) + head * per_head * head_dim,
                    .out_stride = args.out.stride},
                   *scratch_[static_cast<size_t>(worker)]);
    }
  });
}

// Gathers for each output frame its three input frames in the weight's order [in, 3], then multiplies.
void CpuStream::CausalConv1d(const CausalConv1dArgs& args) {
  checker_.Check(args);
  const CpuConv& conv = AsCpu(args.weight);
  const int64_t channels = conv.in_channels();
  const int tail_rows = conv.tail_rows();
  const int stride = conv.stride();
  const BatchPlan& p = plan(PlanId::kEncoder);
  const int64_t in_rows = int64_t{p.rows} * args.rows_per_plan_row;
  const int64_t out_rows = in_rows / stride;
  float* frames = frames_.Get<float>(out_rows * channels * 3);
  for (const PlanGroup& group : p.groups) {
    const int64_t begin = int64_t{group.row_begin} * args.rows_per_plan_row;
    const int64_t count = int64_t{group.row_count} * args.rows_per_plan_row;
    float* tail = state_->Tail(group.slot, args.index);
    const auto frame = [&](int64_t i) { return i < 0 ? tail + (i + tail_rows) * channels : RowF32(args.x, begin + i); };
    ForRows(count / stride, channels * 3, [&](int64_t e) {
      GatherTaps(frame(e * stride - tail_rows), frame(e * stride + 1 - tail_rows), frame(e * stride + 2 - tail_rows),
                 channels, frames + (begin / stride + e) * channels * 3);
    });
    if (count >= tail_rows) {
      for (int t = 0; t < tail_rows; ++t) std::copy_n(frame(count - tail_rows + t), channels, tail + t * channels);
    } else {  // one frame into a tail of two
      std::copy_n(tail + channels, channels, tail);
      std::copy_n(frame(0), channels, tail + channels);
    }
  }
  const View x{frames, quant::DType::kF32, out_rows, channels * 3, channels * 3};
  RunLinearOp({.x = x, .rows = out_rows}, conv.linear(), {.out = args.out, .epilogue = Epilogue::kGelu});
}

}  // namespace voxrt::backend::cpu
