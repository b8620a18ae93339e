// Picks the instance of one weight format: ring depth of the streaming kernel, tile shape of the tall one.
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/linear_small.cuh"
#include "backend/cuda/kernels/linear_tall.cuh"
#include "backend/cuda/kernels/shapes.h"

namespace voxrt::cuda_kernels {

template <WeightFormat kFormat>
cudaError_t LaunchLinearFormat(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context) {
  LinearParams p = params;
  p.tiles_per_block = plan.tiles_per_block;
  p.batch_tiles = plan.batch_tiles;
  p.split = plan.split;
  p.small = plan.small;
  if (plan.kernel == LinearKernel::kSmall) {
    const dim3 grid(static_cast<unsigned>(plan.blocks));
    auto launch = [&](auto kernel) { return Launch(kernel, p, grid, kSmallThreads, plan.shared_bytes, context); };
    if (plan.slots == RingSlots(kFormat, 0)) return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 0)>);
    if (plan.slots == RingSlots(kFormat, 1)) return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 1)>);
    return launch(LinearSmallKernel<kFormat, RingSlots(kFormat, 2)>);
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
