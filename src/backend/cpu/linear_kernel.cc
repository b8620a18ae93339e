// Linear layers over stored fp32, bf16 and fp16 weights: y = x W^T for any number of rows with one arithmetic
// (kernels.h).
//   few rows   weights are widened in registers while they stream from memory
//   many rows  a block of weight rows is widened into cache once and meets all activation rows there
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target: compiled for each instruction set.
#include "backend/cpu/linear_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

template <typename T>
struct WidenFloat {
  const LinearJob& job;

  HWY_INLINE void operator()(int matrix, int64_t row, int64_t padded, float* out) const {
    const DF d;
    const T* source = static_cast<const T*>(matrix == 0 ? job.weight : job.pair) + row * job.cols;
    int64_t k = 0;
    for (; k + kL <= job.cols; k += kL) hn::Store(LoadWide(source + k), d, out + k);
    if (k == job.cols) return;
    WidenRow(source + k, job.format.dtype, job.cols - k, out + k);
    std::fill(out + job.cols, out + padded, 0.0f);
  }
};

template <typename T, class Sink>
void RunTyped(const LinearJob& job, WorkerScratch& scratch, Sink sink) {
  if (job.rows >= kManyRows || job.cols % kL != 0) return RunWidened(job, scratch, WidenFloat<T>{job}, sink);
  const FloatOperand<T> operand{static_cast<const T*>(job.weight), job.cols, job.cols, job.x, job.x_stride};
  const FloatOperand<T> pair{static_cast<const T*>(job.pair), job.cols, job.cols, job.x, job.x_stride};
  // A few weight rows at a time meet all activation rows, so that they come from memory once; more of them where long
  // rows make activations wait in a farther cache.
  const int64_t block = job.rows >= 3 && job.cols > kChunk ? 4 * kL : kL;
  for (int64_t n = job.n_begin; n < job.n_end; n += block) {
    AllFloatRows(operand, pair, n, n, std::min(block, job.n_end - n), job.rows, scratch.partial, sink);
  }
}

template <typename T>
void RunStored(const LinearJob& job, WorkerScratch& scratch) {
  if (job.pair != nullptr) return RunTyped<T>(job, scratch, PairSink(job));
  if (job.best_value != nullptr) return RunTyped<T>(job, scratch, ArgMaxSink(job, scratch.lanes));
  RunTyped<T>(job, scratch, StoreSink(job));
}

void LinearFloat(const LinearJob& job, WorkerScratch& scratch) {
  switch (job.format.dtype) {
    case quant::DType::kF32:
      return RunStored<float>(job, scratch);
    case quant::DType::kF16:
      return RunStored<F16>(job, scratch);
    default:
      return RunStored<Bf16>(job, scratch);
  }
}

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxrt::backend::cpu {
HWY_EXPORT(LinearFloat);

void RunLinear(const LinearJob& job, WorkerScratch& scratch) {
  if (job.rows <= 0 || job.n_begin >= job.n_end) return;
  if (job.format.int8_activations) return RunLinearInteger(job, scratch);
  if (job.format.kind != quant::FormatKind::kFloat) return RunLinearDequantized(job, scratch);
  HWY_DYNAMIC_DISPATCH(LinearFloat)(job, scratch);
}

}  // namespace voxrt::backend::cpu
#endif
