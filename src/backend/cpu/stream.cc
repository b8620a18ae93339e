// Plans, copies, taps and row-wise operations; stream_linear.cc and stream_attention.cc hold the heavy ones.
#include "backend/cpu/stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace voxrt::backend::cpu {
namespace {

float* RowF32(const View& view, int64_t row) { return reinterpret_cast<float*>(view.row_bytes(row)); }

CpuSessionState* AsCpu(SessionState* state) {
  auto* cpu = dynamic_cast<CpuSessionState*>(state);
  VOXRT_CHECK(cpu != nullptr);  // a stream works on session state of its own device
  return cpu;
}

void NarrowRow(const float* x, quant::DType dtype, int64_t count, std::byte* out) {
  switch (dtype) {
    case quant::DType::kF32:
      std::memcpy(out, x, static_cast<size_t>(count) * sizeof(float));
      return;
    case quant::DType::kBF16:
      for (int64_t i = 0; i < count; ++i) reinterpret_cast<uint16_t*>(out)[i] = quant::F32ToBF16(x[i]);
      return;
    default:
      VOXRT_CHECK(dtype == quant::DType::kF16);
      for (int64_t i = 0; i < count; ++i) reinterpret_cast<uint16_t*>(out)[i] = quant::F32ToF16(x[i]);
  }
}

}  // namespace

CpuStream::CpuStream(const StreamSpec& spec, std::shared_ptr<Workers> workers)
    : workers_(std::move(workers)), state_(AsCpu(spec.state)), checker_(spec, state_->spec(), {}) {
  for (int i = 0; i < workers_->pool.threads(); ++i) scratch_.push_back(std::make_unique<WorkerScratch>());
}

void CpuStream::SetPlan(PlanId id, const BatchPlan& plan) {
  checker_.SetPlan(id, plan);
  plans_[static_cast<size_t>(id)] = plan;
}

void CpuStream::Run(const RunKey& key, base::FunctionRef<void(Stream&)> emit) {
  checker_.Check(key);
  emit(*this);
}

void CpuStream::Upload(const View& destination, const void* source) {
  const size_t row_bytes = static_cast<size_t>(destination.cols) * quant::DTypeBytes(destination.dtype);
  for (int64_t r = 0; r < destination.rows; ++r) {
    std::memcpy(destination.row_bytes(r), static_cast<const std::byte*>(source) + static_cast<size_t>(r) * row_bytes,
                row_bytes);
  }
}

Status CpuStream::Readback(const View& source, void* destination) {
  const size_t row_bytes = static_cast<size_t>(source.cols) * quant::DTypeBytes(source.dtype);
  for (int64_t r = 0; r < source.rows; ++r) {
    std::memcpy(static_cast<std::byte*>(destination) + static_cast<size_t>(r) * row_bytes, source.row_bytes(r),
                row_bytes);
  }
  return {};
}

void CpuStream::CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) {
  checker_.CheckClone(from, to, encoder_end, decoder_end);
  state_->Copy(from, to, encoder_end, decoder_end);
}

void CpuStream::TakeTap(std::string_view name, const View& view) {
  if (!sink_->Wants(name)) return;
  std::vector<float> values(static_cast<size_t>(view.rows * view.cols));
  for (int64_t r = 0; r < view.rows; ++r)
    WidenRow(view.row_bytes(r), view.dtype, view.cols, values.data() + r * view.cols);
  sink_->Take(name, view.rows, view.cols, values.data());
}

void CpuStream::RunWorkers(Job job) {
  std::lock_guard lock(workers_->mutex);
  workers_->pool.Run(job);
}

void CpuStream::ForRows(int64_t rows, int64_t work_per_row, base::FunctionRef<void(int64_t row)> body) {
  constexpr int64_t kWorthAPhase = 16384;  // elements: about 2 us of one core
  if (rows * work_per_row < kWorthAPhase) {
    for (int64_t r = 0; r < rows; ++r) body(r);
    return;
  }
  RunWorkers([&](int worker, int workers) {
    for (int64_t r = rows * worker / workers; r < rows * (worker + 1) / workers; ++r) body(r);
  });
}

int CpuStream::SlotOfRow(PlanId id, int64_t row) const {
  for (const PlanGroup& group : plan(id).groups) {
    if (row >= group.row_begin && row < group.row_begin + group.row_count) return group.slot;
  }
  VOXRT_CHECK(false && "row belongs to no group of the plan");
}

void CpuStream::Embed(const EmbedArgs& args) {
  checker_.Check(args);
  const CpuLinear& table = AsCpu(args.table);
  const BatchPlan& p = plan(PlanId::kDecoder);
  for (int64_t r = 0; r < p.rows; ++r) {
    int32_t token = p.token[static_cast<size_t>(r)];
    if (token == BatchPlan::kDeviceToken) token = state_->Token(SlotOfRow(PlanId::kDecoder, r));
    float* out = RowF32(args.out, r);
    table.ReadRow(token, out);
    if (args.audio.empty()) continue;
    AddRow(RowF32(args.audio, p.audio_row[static_cast<size_t>(r)]), table.cols(), out);
  }
}

void CpuStream::RmsNorm(const RmsNormArgs& args) {
  checker_.Check(args);
  // Rows beyond the plan have no delay of their own and nobody reads them.
  const int64_t rows = args.scales.empty() ? args.x.rows : plan(PlanId::kDecoder).rows;
  const Input input{
      .x = args.x, .gain = args.gain, .scales = args.scales, .epsilon = args.epsilon, .normed = {}, .rows = rows};
  ForRows(rows, args.x.cols, [&](int64_t r) { NormRow(input, r, RowF32(args.out, r)); });
}

void CpuStream::Gelu(const ElementwiseArgs& args) {
  checker_.CheckGelu(args);
  ForRows(args.x.rows, args.x.cols * 4,
          [&](int64_t r) { GeluRow(RowF32(args.x, r), args.x.cols, RowF32(args.out, r)); });
}

void CpuStream::Add(const ElementwiseArgs& args) {
  checker_.CheckAdd(args);
  ForRows(args.x.rows, args.x.cols, [&](int64_t r) { AddRow(RowF32(args.x, r), args.x.cols, RowF32(args.out, r)); });
}

void CpuStream::Copy(const ElementwiseArgs& args) {
  checker_.CheckCopy(args);
  if (args.x.dtype == args.out.dtype) {
    const size_t row_bytes = static_cast<size_t>(args.x.cols) * quant::DTypeBytes(args.x.dtype);
    for (int64_t r = 0; r < args.x.rows; ++r) std::memmove(args.out.row_bytes(r), args.x.row_bytes(r), row_bytes);
    return;
  }
  float* wide = frames_.Get<float>(args.x.cols);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    WidenRow(args.x.row_bytes(r), args.x.dtype, args.x.cols, wide);
    NarrowRow(wide, args.out.dtype, args.x.cols, args.out.row_bytes(r));
  }
}

void CpuStream::ArgMax(const ArgMaxArgs& args) {
  checker_.Check(args);
  const auto rows = static_cast<int64_t>(plan(PlanId::kDecoder).head_rows.size());
  ForRows(rows, args.logits.cols, [&](int64_t r) {
    *reinterpret_cast<int32_t*>(args.out.row_bytes(r)) = ArgMaxRow(RowF32(args.logits, r), args.logits.cols);
  });
  StoreTokens(args.out, rows);
}

void CpuStream::StoreTokens(const View& out, int64_t rows) {
  const BatchPlan& p = plan(PlanId::kDecoder);
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t row = p.head_rows[static_cast<size_t>(i)];
    state_->Token(SlotOfRow(PlanId::kDecoder, row)) = *reinterpret_cast<const int32_t*>(out.row_bytes(i));
  }
}

}  // namespace voxrt::backend::cpu
