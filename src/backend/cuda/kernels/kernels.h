// Launchers: raw pointers and a CUDA stream in, cudaError_t out. No engine headers. Row counts and shapes are checked
// by the caller.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/params.h"

namespace voxrt::cuda_kernels {

// What plans need to know of a device.
struct DeviceLimits {
  int sm_count = 1;
  int shared_limit = 0;  // most shared memory of one block, bytes
  int clusters = 0;      // of four blocks that run at once, one an SM; 0: no Hopper kernel (compute capability 9.0)
};

struct LaunchContext {
  cudaStream_t stream = nullptr;
  bool programmatic = false;  // edge to the previous kernel of the stream: its prologue may overlap (sm_90 and later)
  DeviceLimits device;
};

// How a linear runs on a device: decided by shape, rows and device alone (pure), written into the params.
enum class LinearKernel : int32_t { kSmall, kWide, kHopper };
struct LinearPlan {
  LinearKernel kernel = LinearKernel::kSmall;
  int32_t blocks = 0;
  int32_t threads = 0;  // of a block
  int32_t tiles_per_block = 0;
  int32_t batch_tiles = 0;
  SmallPlan small{};
  WidePlan wide{};
  int32_t slots = 0;    // units in a warp's ring (small)
  int32_t columns = 0;  // rows of x in a block (wide, Hopper)
  int32_t shared_bytes = 0;
  int64_t workspace_floats = 0;
  int32_t split_counters = 0;
};
LinearPlan PlanLinear(const LinearParams& params, const DeviceLimits& device);
// How many clusters of four such blocks run at once on the current device: fewer than a quarter of its SMs.
cudaError_t CountClusters(int* clusters);
cudaError_t LaunchLinear(const LinearParams& params, const LinearPlan& plan, const LaunchContext& context);

struct AttentionPlan {
  int32_t tile_positions = 0;  // rows of a session in one tile
  int32_t groups = 0;          // of chains (shapes.h)
  int32_t blocks_per_tile = 0;
  int32_t items = 0;   // tiles x K/V heads x blocks_per_tile
  int32_t blocks = 0;  // that take them in turn
  int32_t block_items = 0;
  int32_t stages = 0;
  int32_t shared_bytes = 0;
  AttentionLayout layout{};
  int32_t q8 = 0;  // eights of queries of a tile
  uint32_t group_reciprocal = 0;
  int64_t workspace_floats = 0;
  int32_t counters = 0;
};
AttentionPlan PlanAttention(int heads, int kv_heads, int head_dim, bool int8, int tiles, int most_tile_rows,
                            const DeviceLimits& device);
// Rows of one session that share a tile: 16 MMA columns hold positions x query heads of a K/V head.
int AttentionTilePositions(int heads, int kv_heads, int head_dim, bool int8, int shared_limit);
AttentionParams WithPlan(const AttentionParams& params, const AttentionPlan& plan);
cudaError_t LaunchAttention(const AttentionParams& params, const AttentionPlan& plan, const LaunchContext& context);

cudaError_t LaunchIngest(const IngestParams& params, const LaunchContext& context);
cudaError_t LaunchEmbed(const EmbedParams& params, const LaunchContext& context);
cudaError_t LaunchRope(const RopeParams& params, const LaunchContext& context);
cudaError_t LaunchAppend(const AppendParams& params, const LaunchContext& context);
cudaError_t LaunchElementwise(const ElementwiseParams& params, const LaunchContext& context);
cudaError_t LaunchArgMax(const ArgMaxParams& params, const LaunchContext& context);
cudaError_t LaunchClone(const CloneParams& params, const LaunchContext& context);
cudaError_t LaunchRepack(const RepackParams& params, const LaunchContext& context);

}  // namespace voxrt::cuda_kernels
