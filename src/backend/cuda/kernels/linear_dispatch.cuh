// Picks the instance of one weight format: ring depth of the streaming kernel, tile shape of the tall one.
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/linear_small.cuh"
#include "backend/cuda/kernels/linear_tall.cuh"
#include "backend/cuda/kernels/linear_wide.cuh"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {

// The instance for the kind of a phase, or null where there is none: those of live ticks with 4-bit weights of group
// 128 and an 8-bit head have one.
using LeanKernel = void (*)(LinearParams);
template <WeightFormat kFormat>
LeanKernel LeanInstance(const LinearParams& p, int slots) {
  if constexpr (kFormat == WeightFormat::kInt4G128) {
    if (slots == RingSlots(kFormat, 0)) {
      if (FitsUse(p, SmallUse::kNormQkv)) return LinearSmallKernel<kFormat, RingSlots(kFormat, 0), SmallUse::kNormQkv>;
      if (FitsUse(p, SmallUse::kNormSwiGlu))
        return LinearSmallKernel<kFormat, RingSlots(kFormat, 0), SmallUse::kNormSwiGlu>;
      if (FitsUse(p, SmallUse::kPlainAdd))
        return LinearSmallKernel<kFormat, RingSlots(kFormat, 0), SmallUse::kPlainAdd>;
    }
    if (slots == RingSlots(kFormat, 1) && FitsUse(p, SmallUse::kPlainAdd))
      return LinearSmallKernel<kFormat, RingSlots(kFormat, 1), SmallUse::kPlainAdd>;
  }
  if constexpr (kFormat == WeightFormat::kInt8Row) {
    if (slots == RingSlots(kFormat, 0) && FitsUse(p, SmallUse::kNormHead))
      return LinearSmallKernel<kFormat, RingSlots(kFormat, 0), SmallUse::kNormHead>;
  }
  return nullptr;
}

template <WeightFormat kFormat>
cudaError_t LaunchLinearFormat(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context) {
  LinearParams p = params;
  p.tiles_per_block = plan.tiles_per_block;
  p.batch_tiles = plan.batch_tiles;
  p.split = plan.split;
  p.small = plan.small;
  p.wide = plan.wide;
  if (plan.kernel == LinearKernel::kSmall) {
    const dim3 grid(static_cast<unsigned>(plan.blocks));
    auto launch = [&](auto kernel) { return Launch(kernel, p, grid, kSmallThreads, plan.shared_bytes, context); };
    if (plan.lean) {
      const LeanKernel lean = LeanInstance<kFormat>(p, plan.slots);
      if (lean != nullptr) return launch(lean);
    }
    if (plan.slots == RingSlots(kFormat, 0)) return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 0)>);
    if (plan.slots == RingSlots(kFormat, 1)) return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 1)>);
    return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 2)>);
  }
  if (plan.kernel == LinearKernel::kWide) {
    const dim3 wide_grid(static_cast<unsigned>(plan.blocks));
    auto launch = [&](auto kernel) {
      return Launch(kernel, p, wide_grid, plan.tiles_per_block * 32, plan.shared_bytes, context);
    };
    if (plan.columns == 16) return launch(LinearWideKernel<kFormat, 2>);
    if (plan.columns == 32) return launch(LinearWideKernel<kFormat, 4>);
    return launch(LinearWideKernel<kFormat, 8>);
  }
  const dim3 grid(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.row_blocks),
                  static_cast<unsigned>(plan.split));
  constexpr int kDeep = TallStages(kFormat, true), kShallow = TallStages(kFormat, false);
  const bool deep = plan.slots == kDeep;
  auto launch = [&](auto deep_kernel, int deep_bytes, auto shallow_kernel, int shallow_bytes) {
    return deep ? Launch(deep_kernel, p, grid, kTallThreads, deep_bytes, context)
                : Launch(shallow_kernel, p, grid, kTallThreads, shallow_bytes, context);
  };
  switch (plan.columns) {
    case 16:
      return launch(LinearTallKernel<kFormat, 8, 2, kDeep>, TallShape<kFormat, 8, 2, kDeep>::kShared,
                    LinearTallKernel<kFormat, 8, 2, kShallow>, TallShape<kFormat, 8, 2, kShallow>::kShared);
    case 32:
      return launch(LinearTallKernel<kFormat, 4, 2, kDeep>, TallShape<kFormat, 4, 2, kDeep>::kShared,
                    LinearTallKernel<kFormat, 4, 2, kShallow>, TallShape<kFormat, 4, 2, kShallow>::kShared);
    default:
      return launch(LinearTallKernel<kFormat, 4, 4, kDeep>, TallShape<kFormat, 4, 4, kDeep>::kShared,
                    LinearTallKernel<kFormat, 4, 4, kShallow>, TallShape<kFormat, 4, 4, kShallow>::kShared);
  }
}

}  // namespace voxrt::cuda_kernels
