// Picks the instance of one weight format: ring depth and kind of phase of the streaming kernel, columns of the wide
// one.
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/linear_hopper.cuh"
#include "backend/cuda/kernels/linear_small.cuh"
#include "backend/cuda/kernels/linear_wide.cuh"
#include "backend/cuda/kernels/rows_map.h"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {

// The instance for the kind of a phase, or null where there is none: those of live ticks with 4-bit weights of group
// 128 and an 8-bit head have one.
using LeanKernel = void (*)(LinearParams);
template <WeightFormat kFormat>
LeanKernel LeanInstance(const LinearParams& p, int slots) {
  if constexpr (kFormat == WeightFormat::kInt4G128) {
    if (slots == RingSlots(kFormat, 0)) {
      constexpr int kDeepest = RingSlots(kFormat, 0);
      const bool one_step = NormSteps(p.weight.cols) == 1;
      if (FitsUse(p, SmallUse::kNormQkv))
        return one_step ? LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormQkv, 1>
                        : LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormQkv, 2>;
      if (FitsUse(p, SmallUse::kNormSwiGlu))
        return one_step ? LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormSwiGlu, 1>
                        : LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormSwiGlu, 2>;
    }
    if (slots == RingSlots(kFormat, 1) && FitsUse(p, SmallUse::kPlainAdd))
      return LinearSmallKernel<kFormat, RingSlots(kFormat, 1), SmallUse::kPlainAdd>;
  }
  if constexpr (kFormat == WeightFormat::kInt8Row) {
    if (slots == RingSlots(kFormat, 0) && FitsUse(p, SmallUse::kNormHead) && NormSteps(p.weight.cols) == 2)
      return LinearSmallKernel<kFormat, RingSlots(kFormat, 0), SmallUse::kNormHead, 2>;
  }
  return nullptr;
}

template <WeightFormat kFormat, int kN8>
LeanKernel HopperInstance(const LinearParams& p) {
  const RowsUse use = RowsUseOf(p);
  if constexpr (kFormat == WeightFormat::kInt4G128) {
    if (use == RowsUse::kQkv) return LinearHopperKernel<kFormat, kN8, RowsUse::kQkv>;
    if (use == RowsUse::kSwiGlu) return LinearHopperKernel<kFormat, kN8, RowsUse::kSwiGlu>;
    if (use == RowsUse::kAdd) return LinearHopperKernel<kFormat, kN8, RowsUse::kAdd>;
  }
  if constexpr (kFormat == WeightFormat::kInt8Row) {
    if (use == RowsUse::kHead) return LinearHopperKernel<kFormat, kN8, RowsUse::kHead>;
  }
  return LinearHopperKernel<kFormat, kN8>;
}

template <WeightFormat kFormat>
cudaError_t LaunchLinearFormat(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context) {
  LinearParams p = params;
  p.tiles_per_block = plan.tiles_per_block;
  p.batch_tiles = plan.batch_tiles;
  p.small = plan.small;
  p.wide = plan.wide;
  const dim3 grid(static_cast<unsigned>(plan.blocks));
  auto launch = [&](auto kernel) {
    return Launch(kernel, p, grid, plan.threads, plan.shared_bytes, context, plan.wide.cluster);
  };
  if (plan.kernel == LinearKernel::kSmall) {
    const LeanKernel lean = LeanInstance<kFormat>(p, plan.slots);
    if (lean != nullptr) return launch(lean);
    if (plan.slots == RingSlots(kFormat, 0)) return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 0)>);
    if (plan.slots == RingSlots(kFormat, 1)) return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 1)>);
    return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 2)>);
  }
  if (plan.kernel == LinearKernel::kHopper) {
    const cudaError_t error = MakeRowsMap(p.input.data, p.rows, int64_t{p.weight.units} * kUnitCols, p.input.stride,
                                          plan.columns, &p.rows_map);
    if (error != cudaSuccess) return error;
    if (plan.columns == 16) return launch(HopperInstance<kFormat, 2>(p));
    if (plan.columns == 32) return launch(HopperInstance<kFormat, 4>(p));
    if (plan.columns == 64) return launch(HopperInstance<kFormat, 8>(p));
    return launch(HopperInstance<kFormat, 16>(p));
  }
  if (plan.columns == 16) return launch(LinearWideKernel<kFormat, 2>);
  if (plan.columns == 32) return launch(LinearWideKernel<kFormat, 4>);
  return launch(LinearWideKernel<kFormat, 8>);
}

}  // namespace voxrt::cuda_kernels
