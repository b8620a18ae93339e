// Lowering: the recorded operations of a Run -> phases (one kernel launch each). A pure host function: same operations,
// shapes and device limits, same phases; nothing is allocated or launched here. Phases in order give the operations in
// order, bit for bit.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "backend/cuda/kernels/kernels.h"
#include "backend/stream.h"

namespace voxrt::cuda {

struct TapOp {
  std::string name;
  backend::View view;
};
struct GeluOp {
  backend::ElementwiseArgs args;
};
struct AddOp {
  backend::ElementwiseArgs args;
};
struct CopyOp {
  backend::ElementwiseArgs args;
};

using Op = std::variant<backend::EmbedArgs, backend::LinearArgs, backend::LinearPairArgs, backend::RmsNormArgs,
                        backend::RopeStoreKvArgs, backend::WindowAttentionArgs, backend::CausalConv1dArgs,
                        backend::ArgMaxArgs, backend::AttentionInputArgs, backend::AttentionOutputArgs,
                        backend::FeedForwardInputArgs, backend::HeadArgs, GeluOp, AddOp, CopyOp, TapOp>;

// The plan of one stack in device memory (plan_layout.h).
struct PlanPointers {
  const int64_t* index = nullptr;
  const int64_t* first = nullptr;
  const int32_t* slot = nullptr;
  const int32_t* begin = nullptr;
  const int32_t* count = nullptr;
  const int32_t* tile_row = nullptr;
  const int32_t* tile_rows = nullptr;
  const int32_t* token = nullptr;
  const int32_t* audio_row = nullptr;
  const int32_t* delay_row = nullptr;
  const int32_t* head_row = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t rows = 0;
  int64_t head_rows = 0;
  int tiles = 0;
  int most_tile_rows = 0;
  int most_rows = 0;  // of one session
  // A session has more rows than its ring has spare places: keys of the call stay outside the ring until the layer is
  // done.
  bool long_call = false;
};

// Everything of a stream and its device that kernels need; pointers are only passed on.
struct LoweringContext {
  cuda_kernels::DeviceLimits device;
  PlanPointers plans[2];  // by PlanId
  std::function<cuda_kernels::CacheRef(backend::PlanId, int layer)> cache;
  int32_t windows[2] = {0, 0};
  float* conv_tails[2] = {nullptr, nullptr};
  uint32_t* conv_counters = nullptr;  // [2]
  int32_t* slot_tokens = nullptr;
  unsigned long long* head_best = nullptr;
  uint32_t* head_counter = nullptr;
  uint32_t* head_sequence = nullptr;
  int32_t* host_tokens = nullptr;  // device addresses of mapped host memory
  uint32_t* host_flag = nullptr;
  unsigned long long* trace = nullptr;  // [phases][kTraceMarks] or null
  // Scratch; may be null while Needs are found out.
  void* ingest = nullptr;
  float* workspace = nullptr;
  uint32_t* counters = nullptr;
  int8_t* own_codes = nullptr;
  float* own_scales = nullptr;
};

struct LinearPhase {
  cuda_kernels::LinearParams params;
  cuda_kernels::LinearPlan plan;
};
struct AttentionPhase {
  cuda_kernels::AttentionParams params;
  cuda_kernels::AttentionPlan plan;
};

using PhaseBody = std::variant<LinearPhase, AttentionPhase, cuda_kernels::IngestParams, cuda_kernels::EmbedParams,
                               cuda_kernels::RopeParams, cuda_kernels::AppendParams, cuda_kernels::ElementwiseParams,
                               cuda_kernels::ArgMaxParams, TapOp>;
struct Phase {
  PhaseBody body;
};

// Scratch that the phases of a Run use.
struct LoweringNeeds {
  int64_t ingest_bytes = 0;
  int64_t workspace_floats = 0;
  int64_t counters = 0;
  int64_t own_codes = 0;
  int64_t own_scales = 0;
};

std::vector<Phase> Lower(const std::vector<Op>& ops, const LoweringContext& context, LoweringNeeds* needs);

// One line per phase: kernel, shape, rows, grid, shared memory. For tests and reports.
std::string Describe(const Phase& phase);

cudaError_t LaunchPhase(const Phase& phase, const cuda_kernels::LaunchContext& context);

}  // namespace voxrt::cuda
