// The kernels of linear on the emulator: all row counts and all kernels give the same bits, for every weight format and
// every kind of output, and they are the products that they should be.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "backend/cuda/emulation/emulator.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/linear_hopper.cuh"
#include "backend/cuda/kernels/linear_small.cuh"
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

// general: never an instance for one kind of phase.
template <WeightFormat kFormat>
void LaunchFormat(const LinearParams& params, const LinearPlan& plan, bool general) {
  LinearParams p = params;
  p.tiles_per_block = plan.tiles_per_block;
  p.batch_tiles = plan.batch_tiles;
  p.small = plan.small;
  p.wide = plan.wide;
  std::vector<float> workspace(static_cast<size_t>(plan.workspace_floats) + 4, NAN);
  p.workspace = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace.data()) + 15) / 16 * 16);
  std::vector<uint32_t> counters(static_cast<size_t>(plan.split_counters), 0u);
  p.split_counter = counters.data();
  auto run = [&](auto kernel) {
    cuda_emulation::Launch(
        dim3(static_cast<unsigned>(plan.blocks)), plan.threads, plan.shared_bytes, 11, [&] { kernel(p); },
        std::max(plan.wide.cluster, 1));
  };
  if (plan.kernel == LinearKernel::kSmall) {
    constexpr int kDeepest = RingSlots(kFormat, 0);
    if (!general && plan.slots == kDeepest) {
      auto run_norm = [&](auto one, auto two) { run(NormSteps(p.weight.cols) == 1 ? one : two); };
      if (FitsUse(p, SmallUse::kNormQkv))
        return run_norm(LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormQkv, 1>,
                        LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormQkv, 2>);
      if (FitsUse(p, SmallUse::kNormSwiGlu))
        return run_norm(LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormSwiGlu, 1>,
                        LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormSwiGlu, 2>);
      if (FitsUse(p, SmallUse::kNormHead))
        return run_norm(LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormHead, 1>,
                        LinearSmallKernel<kFormat, kDeepest, SmallUse::kNormHead, 2>);
    }
    if (!general && plan.slots == RingSlots(kFormat, 1) && FitsUse(p, SmallUse::kPlainAdd))
      return run(LinearSmallKernel<kFormat, RingSlots(kFormat, 1), SmallUse::kPlainAdd>);
    if (plan.slots == kDeepest) return run(LinearSmallKernel<kFormat, RingSlots(kFormat, 0)>);
    if (plan.slots == RingSlots(kFormat, 1)) return run(LinearSmallKernel<kFormat, RingSlots(kFormat, 1)>);
    return run(LinearSmallKernel<kFormat, RingSlots(kFormat, 2)>);
  }
  if (plan.kernel == LinearKernel::kHopper) {
    p.rows_map.words[0] = reinterpret_cast<uint64_t>(p.input.data);
    p.rows_map.words[1] = static_cast<uint64_t>(p.rows);
    p.rows_map.words[2] = static_cast<uint64_t>(p.input.stride);
    p.rows_map.words[3] = static_cast<uint64_t>(plan.columns);
    auto run_hopper = [&](auto columns) {
      constexpr int kN8 = decltype(columns)::value / 8;
      const RowsUse use = general ? RowsUse::kAny : RowsUseOf(p);
      if (use == RowsUse::kQkv) return run(LinearHopperKernel<kFormat, kN8, RowsUse::kQkv>);
      if (use == RowsUse::kSwiGlu) return run(LinearHopperKernel<kFormat, kN8, RowsUse::kSwiGlu>);
      if (use == RowsUse::kAdd) return run(LinearHopperKernel<kFormat, kN8, RowsUse::kAdd>);
      if (use == RowsUse::kHead) return run(LinearHopperKernel<kFormat, kN8, RowsUse::kHead>);
      run(LinearHopperKernel<kFormat, kN8>);
    };
    if (plan.columns == 16) return run_hopper(std::integral_constant<int, 16>{});
    if (plan.columns == 32) return run_hopper(std::integral_constant<int, 32>{});
    if (plan.columns == 64) return run_hopper(std::integral_constant<int, 64>{});
    return run_hopper(std::integral_constant<int, 128>{});
  }
  if (plan.columns == 16) return run(LinearWideKernel<kFormat, 2>);
  if (plan.columns == 32) return run(LinearWideKernel<kFormat, 4>);
  run(LinearWideKernel<kFormat, 8>);
}

void LaunchLinearEmulated(const LinearParams& p, const LinearPlan& plan, bool general) {
  switch (p.weight.format) {
    case WeightFormat::kInt4G128:
      return LaunchFormat<WeightFormat::kInt4G128>(p, plan, general);
    case WeightFormat::kInt4G32:
      return LaunchFormat<WeightFormat::kInt4G32>(p, plan, general);
    case WeightFormat::kInt8Row:
      return LaunchFormat<WeightFormat::kInt8Row>(p, plan, general);
    case WeightFormat::kInt8G32:
      return LaunchFormat<WeightFormat::kInt8G32>(p, plan, general);
    case WeightFormat::kBf16:
      return LaunchFormat<WeightFormat::kBf16>(p, plan, general);
  }
}

constexpr DeviceLimits kHoppers[] = {{kSms, kSharedLimit, 2}, {4, kSharedLimit, 1}, {132, kSharedLimit, 30}};

// Columns, and where the groups of an output are: nowhere, in one block, in a cluster.
using HopperForm = std::pair<int, int>;
HopperForm FormOf(const LinearPlan& plan) {
  return {plan.columns, plan.wide.groups == 1 ? 0 : plan.wide.cluster == 1 ? 1 : 2};
}
constexpr int kCases = 9;

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
  // Together the cases make the plan pick every form of the Hopper kernel.
  static void TearDownTestSuite() {
    if (cases_ran_ < kCases) return;
    for (const int columns : {16, 32, 64, 128}) {
      const bool ran = forms_.count({columns, 0}) + forms_.count({columns, 1}) + forms_.count({columns, 2}) > 0;
      EXPECT_TRUE(ran) << columns << " columns";
    }
    for (const int groups : {0, 1, 2}) {
      bool ran = false;
      for (const HopperForm& form : forms_) ran = ran || form.second == groups;
      EXPECT_TRUE(ran) << (groups == 0 ? "one group" : groups == 1 ? "groups in one block" : "groups in a cluster");
    }
  }

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
    codes_.resize(static_cast<size_t>(WeightBytes(c.format, w.tiles, w.units)));
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

  // The first rows_ rows in calls of `step` rows.
  Result Run(int step, bool norm = false, bool general = false) {
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
      const LinearPlan plan = PlanLinear(p, device_);
      if (plan.kernel == LinearKernel::kHopper) forms_.insert(FormOf(plan));
      EXPECT_TRUE(plan.kernel == (p.rows <= kSmallRows ? LinearKernel::kSmall
                                  : device_.clusters   ? LinearKernel::kHopper
                                                       : LinearKernel::kWide));
      LaunchLinearEmulated(p, plan, general);
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
  static inline std::set<HopperForm> forms_;  // that ran
  static inline int cases_ran_ = 0;
  int rows_ = 0;
  DeviceLimits device_{kSms, kSharedLimit, 0};
};

TEST_P(LinearEmulatedTest, BothKernelsAndEveryRowCountGiveTheSameBits) {
  const Case& c = GetParam();
  ++cases_ran_;
  const Result whole = Run(c.rows);
  EXPECT_TRUE(whole == Run(7)) << "7 rows a call";
  // Few and many SMs, few and many clusters: groups in clusters, groups in one block, all widths.
  for (const DeviceLimits& hopper : kHoppers) {
    device_ = hopper;
    EXPECT_TRUE(whole == Run(c.rows)) << "the kernel of compute capability 9.0";
    if (c.rows > 32) {
      EXPECT_TRUE(whole == Run(32)) << "32 rows a call";
    }
    if (c.rows > 64) {
      EXPECT_TRUE(whole == Run(64)) << "64 rows a call";
    }
  }
  rows_ = 27;
  if (c.rows > rows_) {  // calls of 9 rows have 16 columns
    EXPECT_TRUE(Run(9) == Run(8)) << "9 rows a call";
  }
  rows_ = 4;
  EXPECT_TRUE(Run(1) == Run(4)) << "a row alone";
}

TEST_P(LinearEmulatedTest, InstancesForOneKindOfPhaseGiveTheBitsOfTheGeneralOne) {
  const Case& c = GetParam();
  const bool norm = c.kind == OutputKind::kQkv || c.kind == OutputKind::kSwiGlu || c.kind == OutputKind::kHead;
  if (!norm && c.kind != OutputKind::kAddTo) GTEST_SKIP() << "no such instance";
  rows_ = 5;
  for (const int step : {1, 4}) EXPECT_TRUE(Run(step, norm, true) == Run(step, norm, false)) << step;
}

// Sums in double precision, and what is made of them.
TEST_P(LinearEmulatedTest, ProductsAreRight) {
  const Case& c = GetParam();
  const Result result = Run(c.rows);
  constexpr double kSum = 1e-5;             // of the magnitudes of a sum
  constexpr double kBf16 = 1.0 / (1 << 8);  // of a value
  auto out = [&](int row, int n) {
    const auto at = static_cast<size_t>(row * c.outputs + n);
    if (c.kind == OutputKind::kSwiGlu || c.kind == OutputKind::kQkv) {
      uint16_t bits;
      std::memcpy(&bits, &result.out[at * 2], 2);
      return static_cast<double>(Bf16Bits(bits));
    }
    float value;
    std::memcpy(&value, &result.out[at * 4], 4);
    return static_cast<double>(value);
  };
  for (int r = 0; r < c.rows; ++r) {
    std::vector<double> sums, errors;
    for (int n = 0; n < c.outputs; ++n) {
      double sum = bias_[static_cast<size_t>(n)], magnitude = std::fabs(sum);
      for (int k = 0; k < c.cols; ++k) {
        const double product = static_cast<double>(WeightAt(weight_, n, k)) *
                               static_cast<double>(Bf16Bits(x_[static_cast<size_t>(r * stride_ + k)]));
        sum += product, magnitude += std::fabs(product);
      }
      sums.push_back(sum), errors.push_back(kSum * magnitude);
    }
    auto sum = [&](int n) { return sums[static_cast<size_t>(n)]; };
    auto error = [&](int n) { return errors[static_cast<size_t>(n)]; };
    int top = 0;
    for (int n = 0; n < (c.kind == OutputKind::kSwiGlu ? c.outputs / 2 : c.outputs); ++n) {
      double wanted = sum(n), allowed = error(n);
      if (c.kind == OutputKind::kAddTo) {
        wanted += static_cast<double>(residual_[static_cast<size_t>(r * c.outputs + n)]);
      } else if (c.kind == OutputKind::kGelu) {
        wanted = 0.5 * sum(n) * (1.0 + std::erf(sum(n) / std::sqrt(2.0)));
        allowed = 1.2 * error(n) + kSum;
      } else if (c.kind == OutputKind::kSwiGlu) {
        const int gate = n / 8 * 16 + n % 8, up = gate + 8;
        const double silu = sum(gate) / (1.0 + std::exp(-sum(gate)));
        wanted = silu * sum(up);
        allowed = 1.2 * error(gate) * std::fabs(sum(up)) + (std::fabs(silu) + kSum) * error(up) +
                  kBf16 * std::fabs(wanted) + kSum;
      } else if (c.kind == OutputKind::kQkv) {
        const double own = sum(n), other = sum(n ^ 1);
        if (n < c.outputs - 64) {  // queries and keys are rotated
          const auto angle = static_cast<size_t>(r * 32 + n % 64 / 2);
          wanted = own * static_cast<double>(cos_[angle]) +
                   other * static_cast<double>(n % 2 == 0 ? -sin_[angle] : sin_[angle]);
        }
        allowed = error(n) + error(n ^ 1) + kBf16 * (std::fabs(own) + std::fabs(other) + std::fabs(wanted));
      }
      ASSERT_NEAR(out(r, n), wanted, allowed) << "row " << r << " output " << n;
      if (c.kind == OutputKind::kHead && out(r, n) > out(r, top)) top = n;
    }
    if (c.kind == OutputKind::kHead) {
      EXPECT_EQ(result.token[static_cast<size_t>(r)], top);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearEmulatedTest,
                         testing::Values(Case{WeightFormat::kInt4G128, OutputKind::kAddTo, 80, 2048, 20},
                                         Case{WeightFormat::kInt4G128, OutputKind::kAddTo, 200, 640, 150},
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
