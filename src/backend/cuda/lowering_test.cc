// Lowering is a pure function: the phase table of a full-size live tick on an H200 is a golden text file, every phase
// of one tick is counted, and shared memory stays inside what overlapping phases may take.
#include "backend/cuda/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "backend/cuda/kernels/shapes.h"
#include "backend/cuda/prepared.h"
#include "support/root.h"

namespace voxrt::cuda {
namespace {

using backend::LinearRole;
using backend::PlanId;
using backend::View;
using cuda_kernels::WeightFormat;
using quant::DType;

struct Stack {
  PlanId plan;
  int layers, heads, kv_heads, head_dim;
  int64_t dim, hidden, window;
};
constexpr Stack kEncoder{PlanId::kEncoder, 32, 32, 32, 64, 1280, 5120, 750};
constexpr Stack kDecoder{PlanId::kDecoder, 26, 32, 8, 128, 3072, 9216, 8192};

class LoweringTest : public testing::Test {
 protected:
  LoweringTest() {
    context_.device.sm_count = 132;
    context_.device.shared_limit = 226 * 1024;
    context_.device.clusters = 30;
    context_.cache = [](PlanId id, int) {
      const Stack& stack = id == PlanId::kEncoder ? kEncoder : kDecoder;
      cuda_kernels::CacheRef ref;
      ref.kv_heads = stack.kv_heads;
      ref.head_dim = stack.head_dim;
      ref.capacity = 8256;
      return ref;
    };
    context_.windows[0] = 750;
    context_.windows[1] = 8192;
  }

  const CudaLinear* Weight(LinearRole role, int64_t rows, int64_t cols, WeightFormat format = WeightFormat::kInt4G128) {
    cuda_kernels::WeightRef ref;
    ref.format = format;
    ref.rows = static_cast<int32_t>(rows);
    ref.cols = static_cast<int32_t>(cols);
    ref.tiles = static_cast<int32_t>((rows + 15) / 16);
    ref.units = static_cast<int32_t>((cols + 127) / 128);
    weights_.push_back(
        std::make_unique<CudaLinear>(backend::LinearSpec{.name = "w", .role = role, .blocks = {}}, rows, cols, ref));
    return weights_.back().get();
  }
  static View Dense(int64_t rows, int64_t cols, DType dtype) {
    return {reinterpret_cast<void*>(0x1000), dtype, rows, cols, cols};
  }

  void EmitStack(const Stack& s, int64_t rows) {
    const backend::AttentionShape shape{s.heads, s.kv_heads, s.head_dim};
    const int64_t q = int64_t{s.heads} * s.head_dim;
    const int64_t qkv_cols = int64_t{s.heads + 2 * s.kv_heads} * s.head_dim;
    const View x = Dense(rows, s.dim, DType::kF32);
    const View gain = Dense(1, s.dim, DType::kF32);
    const View qkv = Dense(rows, qkv_cols, DType::kBF16);
    const View hidden = Dense(rows, s.hidden, DType::kBF16);
    for (int i = 0; i < s.layers; ++i) {
      ops_.push_back(backend::AttentionInputArgs{.plan = s.plan,
                                                 .layer = i,
                                                 .shape = shape,
                                                 .x = x,
                                                 .gain = gain,
                                                 .qkv_weight = Weight(LinearRole::kQkv, qkv_cols, s.dim),
                                                 .normed = {},
                                                 .qkv = qkv});
      ops_.push_back(backend::AttentionOutputArgs{.plan = s.plan,
                                                  .layer = i,
                                                  .shape = shape,
                                                  .qkv = qkv,
                                                  .attended = Dense(rows, q, DType::kBF16),
                                                  .output_weight = Weight(LinearRole::kPlain, s.dim, q),
                                                  .x = x});
      ops_.push_back(backend::FeedForwardInputArgs{.x = x,
                                                   .gain = gain,
                                                   .scales = {},
                                                   .gate_up = Weight(LinearRole::kGateUp, 2 * s.hidden, s.dim),
                                                   .normed = {},
                                                   .hidden = hidden});
      ops_.push_back(backend::LinearArgs{.x = hidden,
                                         .weight = Weight(LinearRole::kPlain, s.dim, s.hidden),
                                         .out = x,
                                         .epilogue = backend::Epilogue::kAddTo});
    }
  }

  void EmitTick(int64_t sessions) {
    const int tiles = static_cast<int>(sessions);
    context_.plans[0] = {.rows = 4 * sessions, .tiles = tiles, .most_tile_rows = 4, .most_rows = 4};
    context_.plans[1] = {.rows = sessions, .head_rows = sessions, .tiles = tiles, .most_tile_rows = 1, .most_rows = 1};
    const int64_t rows = 4 * sessions;
    for (int i = 0; i < 2; ++i) {
      const int64_t channels = i == 0 ? 128 : 1280;
      cuda_kernels::WeightRef ref;
      ref.rows = 1280;
      ref.cols = static_cast<int32_t>(3 * channels);
      ref.tiles = 80;
      ref.units = static_cast<int32_t>(3 * channels / 128);
      convs_.push_back(std::make_unique<CudaConv>(
          backend::ConvSpec{.name = "c", .out_channels = 1280, .in_channels = channels, .stride = i + 1, .bias = {}},
          ref));
      ops_.push_back(
          backend::CausalConv1dArgs{.index = i,
                                    .weight = convs_.back().get(),
                                    .rows_per_plan_row = 2,
                                    .x = Dense(2 * rows, channels, i == 0 ? DType::kF32 : DType::kBF16),
                                    .out = Dense(i == 0 ? 2 * rows : rows, 1280, i == 0 ? DType::kBF16 : DType::kF32)});
    }
    EmitStack(kEncoder, rows);
    ops_.push_back(backend::RmsNormArgs{.x = Dense(rows, 1280, DType::kF32),
                                        .gain = Dense(1, 1280, DType::kF32),
                                        .scales = {},
                                        .out = Dense(rows, 1280, DType::kBF16)});
    ops_.push_back(backend::LinearArgs{.x = Dense(sessions, 5120, DType::kBF16),
                                       .weight = Weight(LinearRole::kPlain, 3072, 5120),
                                       .out = Dense(sessions, 3072, DType::kBF16),
                                       .epilogue = backend::Epilogue::kGelu});
    ops_.push_back(backend::LinearArgs{.x = Dense(sessions, 3072, DType::kBF16),
                                       .weight = Weight(LinearRole::kPlain, 3072, 3072),
                                       .out = Dense(sessions, 3072, DType::kF32)});
    const CudaLinear* head = Weight(LinearRole::kHead, 131072, 3072, WeightFormat::kInt8Row);
    ops_.push_back(backend::EmbedArgs{
        .table = head, .audio = Dense(sessions, 3072, DType::kF32), .out = Dense(sessions, 3072, DType::kF32)});
    EmitStack(kDecoder, sessions);
    ops_.push_back(backend::HeadArgs{.x = Dense(sessions, 3072, DType::kF32),
                                     .gain = Dense(1, 3072, DType::kF32),
                                     .weight = head,
                                     .normed = {},
                                     .logits = {},
                                     .token = {reinterpret_cast<void*>(0x1000), DType::kI32, sessions, 1, 1}});
  }

  LoweringContext context_;
  LoweringNeeds needs_;
  std::vector<Op> ops_;
  std::vector<std::unique_ptr<CudaLinear>> weights_;
  std::vector<std::unique_ptr<CudaConv>> convs_;
};

// Equal neighbouring stretches once, with their count.
std::string Table(const std::vector<Phase>& phases) {
  std::vector<std::string> lines;
  for (const Phase& phase : phases) lines.push_back(Describe(phase));
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    size_t length = 1;
    size_t count = 1;
    for (size_t period = 10; period >= 1; --period) {
      size_t repeats = 1;
      while (at + (repeats + 1) * period <= lines.size() &&
             std::equal(lines.begin() + static_cast<long>(at), lines.begin() + static_cast<long>(at + period),
                        lines.begin() + static_cast<long>(at + repeats * period))) {
        ++repeats;
      }
      if (repeats > 1) {
        length = period;
        count = repeats;
        break;
      }
    }
    if (count > 1) text += std::to_string(count) + " times\n";
    for (size_t i = 0; i < length; ++i) text += (count > 1 ? "  " : "") + lines[at + i] + "\n";
    at += length * count;
  }
  return text;
}

TEST_F(LoweringTest, TheLiveTickOfOneSessionHasAtMost300PhasesAsInTheGoldenTable) {
  EmitTick(1);
  const std::vector<Phase> phases = Lower(ops_, context_, &needs_);
  EXPECT_LE(phases.size(), 300u);
  std::ifstream file(test::Root() + "/src/backend/cuda/testdata/live_tick_h200.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(Table(phases), golden.str());
}

TEST_F(LoweringTest, TheLiveTickOf64SessionsIsAsInTheGoldenTable) {
  EmitTick(64);
  std::ifstream file(test::Root() + "/src/backend/cuda/testdata/live_tick_64_h200.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(Table(Lower(ops_, context_, &needs_)), golden.str());
}

TEST_F(LoweringTest, Int8CachesTakeNoMorePhasesWhereAttentionMakesThem) {
  context_.cache = [](PlanId id, int) {
    const Stack& stack = id == PlanId::kEncoder ? kEncoder : kDecoder;
    cuda_kernels::CacheRef ref;
    ref.kv_heads = stack.kv_heads;
    ref.head_dim = stack.head_dim;
    ref.capacity = 8256;
    ref.scale = reinterpret_cast<float*>(0x1000);
    return ref;
  };
  EmitTick(1);
  const std::vector<Phase> phases = Lower(ops_, context_, &needs_);
  EXPECT_LE(phases.size(), 300u);
  for (const Phase& phase : phases) {
    if (const auto* a = std::get_if<AttentionPhase>(&phase.body)) {
      EXPECT_EQ(a->params.own_rows, cuda_kernels::kOwnToQuantize);
    }
    if (const auto* l = std::get_if<LinearPhase>(&phase.body)) {
      EXPECT_EQ(l->params.output.store_cache, 0);
    }
  }
  // So does a pass over many guesses: only a few rows of a session are made by the attention.
  ops_.clear();
  EmitTick(1);
  context_.plans[1].most_rows = cuda_kernels::kMostOwnRows + 1;
  for (const Phase& phase : Lower(ops_, context_, &needs_)) {
    if (const auto* a = std::get_if<AttentionPhase>(&phase.body)) {
      EXPECT_EQ(a->params.own_rows, a->params.cache.head_dim == kEncoder.head_dim ? cuda_kernels::kOwnToQuantize
                                                                                  : cuda_kernels::kOwnInRing);
    }
  }
  // A tap between the two, or an attention alone, finds its rows in the ring.
  context_.plans[1].most_rows = 1;
  ops_.clear();
  const View qkv = Dense(1, 48 * 128, DType::kBF16);
  ops_.push_back(backend::AttentionInputArgs{.plan = PlanId::kDecoder,
                                             .layer = 0,
                                             .shape = {32, 8, 128},
                                             .x = Dense(1, 3072, DType::kF32),
                                             .gain = Dense(1, 3072, DType::kF32),
                                             .qkv_weight = Weight(LinearRole::kQkv, 48 * 128, 3072),
                                             .normed = {},
                                             .qkv = qkv});
  ops_.push_back(TapOp{.name = "qkv", .view = qkv});
  ops_.push_back(backend::WindowAttentionArgs{
      .plan = PlanId::kDecoder, .layer = 0, .shape = {32, 8, 128}, .qkv = qkv, .out = Dense(1, 4096, DType::kBF16)});
  const std::vector<Phase> apart = Lower(ops_, context_, &needs_);
  ASSERT_EQ(apart.size(), 4u);
  EXPECT_NE(std::get_if<cuda_kernels::RopeParams>(&apart[1].body), nullptr);
  EXPECT_EQ(std::get<AttentionPhase>(apart[3].body).params.own_rows, cuda_kernels::kOwnInRing);
}

TEST_F(LoweringTest, PhasesOfOneSessionTakeSmallAndLargePlacesInTurn) {
  static_assert(cuda_kernels::kSmallPhaseBytes + cuda_kernels::kLargePhaseBytes + 2560 <= 228 * 1024);
  static_assert(2 * cuda_kernels::kLargePhaseBytes > 228 * 1024);
  EmitTick(1);
  int index = 0;
  for (const Phase& phase : Lower(ops_, context_, &needs_)) {
    int shared = 0;
    if (const auto* l = std::get_if<LinearPhase>(&phase.body)) {
      shared = l->plan.shared_bytes;
      EXPECT_EQ(l->plan.blocks, 132);
    } else if (const auto* a = std::get_if<AttentionPhase>(&phase.body)) {
      shared = a->plan.shared_bytes;
      EXPECT_LE(a->params.cache.kv_heads * a->plan.blocks_per_tile * a->params.tiles, 132);
    } else {
      ++index;
      continue;
    }
    // Small and large in turn; a pair fits an SM of 228 KB with 1 KB reserved for each block, two large ones do not.
    const int place = index++ % 2 == 0 ? cuda_kernels::kSmallPhaseBytes : cuda_kernels::kLargePhaseBytes;
    EXPECT_EQ(shared, place) << Describe(phase);
  }
}

TEST_F(LoweringTest, EveryBatchFitsTheDeviceAndAsksForItsScratch) {
  for (const int64_t sessions : {2, 3, 16, 64, 512}) {
    for (const int limit : {98 * 1024, 162 * 1024, 226 * 1024}) {
      ops_.clear();
      context_.device.shared_limit = limit;
      context_.device.clusters = limit > 200 * 1024 && sessions != 3 ? 30 : 0;
      needs_ = {};
      EmitTick(sessions);
      for (const Phase& phase : Lower(ops_, context_, &needs_)) {
        if (const auto* l = std::get_if<LinearPhase>(&phase.body)) {
          EXPECT_LE(l->plan.shared_bytes, limit) << Describe(phase);
          EXPECT_LE(l->plan.workspace_floats, needs_.workspace_floats);
          EXPECT_LE(l->plan.split_counters, needs_.counters);
        }
        if (const auto* a = std::get_if<AttentionPhase>(&phase.body)) {
          EXPECT_LE(a->plan.shared_bytes, limit) << Describe(phase);
          // One block for each item, or as many blocks as run at once: two an SM where they fit.
          const int wave = context_.device.sm_count * (2 * (a->plan.shared_bytes + 1024) <= limit + 1024 ? 2 : 1);
          EXPECT_GE(a->plan.blocks, std::min(a->plan.items, wave)) << Describe(phase);
          EXPECT_LE(a->plan.items, a->plan.blocks * cuda_kernels::kMostBlockItems) << Describe(phase);
        }
      }
      if (sessions > 8) {
        EXPECT_GE(needs_.ingest_bytes, sessions * 4 * 1280 * 2);
      }
    }
  }
}

TEST_F(LoweringTest, ACallLongerThanTheRingKeepsItsKeysOutsideUntilTheLayerIsDone) {
  context_.plans[1] = {.rows = 40, .tiles = 10, .most_tile_rows = 4, .long_call = true};
  const View qkv = Dense(40, 48 * 128, DType::kBF16);
  ops_.push_back(backend::WindowAttentionArgs{
      .plan = PlanId::kDecoder, .layer = 0, .shape = {32, 8, 128}, .qkv = qkv, .out = Dense(40, 4096, DType::kBF16)});
  const std::vector<Phase> phases = Lower(ops_, context_, &needs_);
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(std::get<AttentionPhase>(phases[0].body).params.own_rows, 1);
  EXPECT_NE(std::get_if<cuda_kernels::AppendParams>(&phases[1].body), nullptr);
}

TEST(SlicesTest, SlicesDependOnTheShapeAloneAndCoverK) {
  for (int units = 1; units <= 200; ++units) {
    const int length = cuda_kernels::SliceUnits(units);
    const int count = cuda_kernels::SliceCount(units);
    EXPECT_LE(count, cuda_kernels::kMaxSlices);
    EXPECT_GE(length * count, units);
    EXPECT_LT(length * (count - 1), units) << "no empty slice";
  }
}

}  // namespace
}  // namespace voxrt::cuda
