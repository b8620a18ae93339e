// The kernels of linear on the emulator: all row counts and all kernels give the same bits, for every weight format and
// every kind of output, and they are the products that they should be.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "backend/cuda/emulation/emulator.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/linear_small.cuh"
#include "backend/cuda/kernels/linear_tall.cuh"
#include "backend/cuda/kernels/linear_wide.cuh"

namespace voxrt::cuda_kernels {
namespace {

constexpr int kSms = 3;  // few, so that blocks have several items
constexpr int kSharedLimit = 226 * 1024;

uint16_t Bf16(float v) {
  const __nv_bfloat16 b = __float2bfloat16_rn(v);
  uint16_t bits;
  std::memcpy(&bits, &b, 2);
  return bits;
}

struct Case {
  WeightFormat format;
  OutputKind kind;
  int outputs, cols, rows;
};

template <WeightFormat kFormat>
void LaunchFormat(const LinearParams& params, const LinearPlan& plan) {
  LinearParams p = params;
  p.tiles_per_block = plan.tiles_per_block;
  p.batch_tiles = plan.batch_tiles;
  p.split = plan.split;
  p.small = plan.small;
  p.wide = plan.wide;
  std::vector<float> workspace(static_cast<size_t>(plan.workspace_floats) + 4, NAN);
  p.workspace = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace.data()) + 15) / 16 * 16);
  std::vector<uint32_t> counters(static_cast<size_t>(plan.split_counters), 0u);
  p.split_counter = counters.data();
  const auto blocks = static_cast<unsigned>(plan.blocks);
  auto run = [&](dim3 grid, int threads, auto kernel) {
    cuda_emulation::Launch(grid, threads, plan.shared_bytes, 11, [&] { kernel(p); });
  };
  if (plan.kernel == LinearKernel::kSmall) {
    constexpr int kDeepest = RingSlots(kFormat, 0);
    if (plan.lean && plan.slots == kDeepest) {
      if (FitsUse(p, SmallUse::kNormQkv))
        return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormQkv>);
      if (FitsUse(p, SmallUse::kNormSwiGlu))
        return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormSwiGlu>);
      if (FitsUse(p, SmallUse::kNormHead))
        return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormHead>);
      if (FitsUse(p, SmallUse::kPlainAdd))
        return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, kDeepest, SmallUse::kPlainAdd>);
    }
    if (plan.slots == kDeepest) return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, RingSlots(kFormat, 0)>);
    if (plan.slots == RingSlots(kFormat, 1))
      return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, RingSlots(kFormat, 1)>);
    return run(blocks, kSmallThreads, LinearSmallKernel<kFormat, RingSlots(kFormat, 2)>);
  }
  if (plan.kernel == LinearKernel::kWide) {
    const int threads = plan.tiles_per_block * 32;
    if (plan.columns == 16) return run(blocks, threads, LinearWideKernel<kFormat, 2>);
    if (plan.columns == 32) return run(blocks, threads, LinearWideKernel<kFormat, 4>);
    return run(blocks, threads, LinearWideKernel<kFormat, 8>);
  }
  const dim3 grid(blocks, static_cast<unsigned>(plan.row_blocks), static_cast<unsigned>(plan.split));
  ASSERT_EQ(plan.slots, TallStages(kFormat, true));
  if (plan.columns == 16) return run(grid, kTallThreads, LinearTallKernel<kFormat, 8, 2, TallStages(kFormat, true)>);
  if (plan.columns == 32) return run(grid, kTallThreads, LinearTallKernel<kFormat, 4, 2, TallStages(kFormat, true)>);
  run(grid, kTallThreads, LinearTallKernel<kFormat, 4, 4, TallStages(kFormat, true)>);
}

void LaunchLinearEmulated(const LinearParams& p, const LinearPlan& plan) {
  switch (p.weight.format) {
    case WeightFormat::kInt4G128:
      return LaunchFormat<WeightFormat::kInt4G128>(p, plan);
    case WeightFormat::kInt4G32:
      return LaunchFormat<WeightFormat::kInt4G32>(p, plan);
    case WeightFormat::kInt8Row:
      return LaunchFormat<WeightFormat::kInt8Row>(p, plan);
    case WeightFormat::kInt8G32:
      return LaunchFormat<WeightFormat::kInt8G32>(p, plan);
    case WeightFormat::kBf16:
      return LaunchFormat<WeightFormat::kBf16>(p, plan);
  }
}

// What a linear leaves behind.
struct Result {
  std::vector<uint8_t> out, cache;
  std::vector<int32_t> token;
  bool operator==(const Result& other) const {
    return out == other.out && cache == other.cache && token == other.token;
  }
};

class LinearEmulatedTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    rows_ = c.rows;
    WeightRef& w = weight_;
    w.format = c.format;
    w.rows = c.outputs;
    w.cols = c.cols;
    w.tiles = (c.outputs + kTileRows - 1) / kTileRows;
    w.units = (c.cols + kUnitCols - 1) / kUnitCols;
    const int unit = UnitBytes(c.format);
    codes_.resize(static_cast<size_t>(w.tiles) * static_cast<size_t>(w.units * unit));
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    const int code_bytes = c.format == WeightFormat::kBf16                                            ? 0
                           : c.format == WeightFormat::kInt8Row || c.format == WeightFormat::kInt8G32 ? 2048
                                                                                                      : 1024;
    for (size_t u = 0; u < codes_.size(); u += static_cast<size_t>(unit)) {
      for (int i = 0; i < code_bytes; ++i) codes_[u + static_cast<size_t>(i)] = static_cast<uint8_t>(random());
      for (int i = code_bytes; i < unit; i += 2) {
        const uint16_t value = Bf16(0.05f * uniform(random));
        std::memcpy(&codes_[u + static_cast<size_t>(i)], &value, 2);
      }
    }
    w.data = codes_.data();
    bias_.resize(static_cast<size_t>(w.tiles * kTileRows));
    for (float& b : bias_) b = uniform(random);
    w.bias = bias_.data();
    stride_ = w.units * kUnitCols;
    x_.resize(static_cast<size_t>(c.rows * stride_));
    for (int r = 0; r < c.rows; ++r)
      for (int k = 0; k < c.cols; ++k) x_[static_cast<size_t>(r * stride_ + k)] = Bf16(uniform(random));
    for (int i = 0; i < c.rows * stride_; ++i) x_f32_.push_back(uniform(random));
    for (int i = 0; i < c.cols; ++i) gain_.push_back(uniform(random));
    for (int i = 0; i < 2 * c.cols; ++i) delays_.push_back(uniform(random));
    for (int r = 0; r < c.rows; ++r) delay_row_.push_back(r % 2);
    residual_.resize(static_cast<size_t>(c.rows * c.outputs));
    for (float& v : residual_) v = uniform(random);
    for (int r = 0; r < c.rows; ++r) {
      slots_.push_back(0);
      index_.push_back(r + 50);  // over the border of a page
      head_rows_.push_back(r);
    }
    for (int i = 0; i < c.rows * 32; ++i) cos_.push_back(uniform(random)), sin_.push_back(uniform(random));
  }

  // The first rows_ rows in calls of `step` rows, with these forms.
  Result Run(int step, const KernelForms& forms, LinearKernel expected, bool norm = false) {
    const Case& c = GetParam();
    const bool bf16 = c.kind == OutputKind::kSwiGlu || c.kind == OutputKind::kQkv;
    Result result;
    result.out.resize(static_cast<size_t>(c.rows * c.outputs) * (bf16 ? 2 : 4), 0);
    if (c.kind == OutputKind::kAddTo) std::memcpy(result.out.data(), residual_.data(), result.out.size());
    result.cache.resize(c.kind == OutputKind::kQkv ? size_t{4} * 2 * 64 * 64 * 2 : 0, 0);
    result.token.resize(static_cast<size_t>(c.rows), -1);
    for (int first = 0; first < rows_; first += step) {
      LinearParams p;
      p.weight = weight_;
      p.rows = std::min(step, rows_ - first);
      p.input.element = Element::kBf16;
      p.input.aligned = 1;
      p.input.stride = stride_;
      p.input.data = x_.data() + first * stride_;
      if (norm) {
        p.input.kind = InputKind::kNorm;
        p.input.element = Element::kF32;
        p.input.data = x_f32_.data() + first * stride_;
        p.input.gain = gain_.data();
        p.input.epsilon = 1e-5f;
        if (c.kind == OutputKind::kSwiGlu)
          p.input.scales = delays_.data(), p.input.scale_row = delay_row_.data() + first;
      }
      p.output.kind = c.kind;
      p.output.element = bf16 ? Element::kBf16 : Element::kF32;
      p.output.stride = c.outputs;
      p.output.data = result.out.data() + static_cast<size_t>(first * c.outputs) * (bf16 ? 2 : 4);
      const int32_t pages[] = {2, 0, 3, 1};
      int32_t slot_token = 0;
      unsigned long long best[256] = {};
      uint32_t counter = 0;
      p.output.row_slot = slots_.data();
      if (c.kind == OutputKind::kQkv) {
        p.output.heads = c.outputs / 64 - 2;
        p.output.cos = cos_.data() + first * 32;
        p.output.sin = sin_.data() + first * 32;
        p.output.row_index = index_.data() + first;
        p.output.cache = {result.cache.data(), nullptr, pages, 4, 256, 1, 64};
        p.output.store_cache = 1;
      }
      if (c.kind == OutputKind::kHead) {
        p.output.best = best;
        p.output.counter = &counter;
        p.output.token = result.token.data() + first;
        p.output.slot_token = &slot_token;
        p.output.head_row = head_rows_.data();
      }
      const LinearPlan plan = PlanLinear(p, kSms, kSharedLimit, forms);
      EXPECT_TRUE(plan.kernel == expected);
      LaunchLinearEmulated(p, plan);
      EXPECT_EQ(counter, 0u);
    }
    return result;
  }

  WeightRef weight_;
  std::vector<uint8_t> codes_;
  std::vector<float> bias_, residual_, cos_, sin_, x_f32_, gain_, delays_;
  std::vector<uint16_t> x_;
  std::vector<int32_t> slots_, head_rows_, delay_row_;
  std::vector<int64_t> index_;
  int64_t stride_ = 0;
  int rows_ = 0;
};

TEST_P(LinearEmulatedTest, EveryKernelAndRowCountGivesTheSameBits) {
  const Case& c = GetParam();
  const KernelForms old_forms{}, wide{.wide = true};
  EXPECT_TRUE(Run(8, old_forms, LinearKernel::kSmall) == Run(c.rows, old_forms, LinearKernel::kTall)) << "tall";
  const Result alone = Run(7, wide, LinearKernel::kSmall);
  EXPECT_TRUE(alone == Run(c.rows, wide, LinearKernel::kWide)) << "wide";
}

TEST_P(LinearEmulatedTest, LeanInstancesGiveTheSameBits) {
  const Case& c = GetParam();
  const bool norm = c.kind == OutputKind::kQkv || c.kind == OutputKind::kSwiGlu || c.kind == OutputKind::kHead;
  if (!norm && c.kind != OutputKind::kAddTo) GTEST_SKIP() << "no lean instance";
  rows_ = 5;
  for (const int step : {1, 4})
    EXPECT_TRUE(Run(step, {}, LinearKernel::kSmall, norm) == Run(step, {.lean = true}, LinearKernel::kSmall, norm))
        << step;
}

TEST_P(LinearEmulatedTest, WideProductsAreRight) {
  const Case& c = GetParam();
  const Result result = Run(c.rows, {.wide = true}, LinearKernel::kWide);
  if (c.kind != OutputKind::kAddTo && c.kind != OutputKind::kHead) return;  // the others follow from equality
  const auto* out = reinterpret_cast<const float*>(result.out.data());
  for (int r = 0; r < c.rows; ++r) {
    int top = 0;
    for (int n = 0; n < c.outputs; ++n) {
      double sum = bias_[static_cast<size_t>(n)], magnitude = std::fabs(sum);
      if (c.kind == OutputKind::kAddTo) sum += residual_[static_cast<size_t>(r * c.outputs + n)];
      for (int k = 0; k < c.cols; ++k) {
        const double product = static_cast<double>(WeightAt(weight_, n, k)) *
                               static_cast<double>(Bf16Bits(x_[static_cast<size_t>(r * stride_ + k)]));
        sum += product, magnitude += std::fabs(product);
      }
      ASSERT_NEAR(static_cast<double>(out[r * c.outputs + n]), sum, magnitude * 1e-5) << r << " " << n;
      if (out[r * c.outputs + n] > out[r * c.outputs + top]) top = n;
    }
    if (c.kind == OutputKind::kHead) {
      EXPECT_EQ(result.token[static_cast<size_t>(r)], top);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearEmulatedTest,
                         testing::Values(Case{WeightFormat::kInt4G128, OutputKind::kAddTo, 80, 2048, 20},
                                         Case{WeightFormat::kInt4G128, OutputKind::kAddTo, 200, 640, 70},
                                         Case{WeightFormat::kInt4G128, OutputKind::kSwiGlu, 224, 384, 130},
                                         Case{WeightFormat::kInt4G128, OutputKind::kQkv, 192, 256, 66},
                                         Case{WeightFormat::kInt4G32, OutputKind::kAddTo, 96, 1280, 33},
                                         Case{WeightFormat::kInt8Row, OutputKind::kHead, 4128, 256, 10},
                                         Case{WeightFormat::kInt8G32, OutputKind::kAddTo, 48, 896, 40},
                                         Case{WeightFormat::kBf16, OutputKind::kGelu, 80, 384, 17},
                                         Case{WeightFormat::kBf16, OutputKind::kStore, 64, 2304, 64}),
                         [](const auto& test) { return "Case" + std::to_string(test.index); });

}  // namespace
}  // namespace voxrt::cuda_kernels
