// The oracle itself is tested against values worked out by hand and against properties, not against another backend.
#include "backend/ref/ref.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/stream.h"
#include "support/rig.h"
#include "support/weights.h"

namespace voxrt::backend {
namespace {

using quant::DType;
using test::Matrix;
using test::Random;
using test::Rig;
using testing::ElementsAre;
using testing::FloatEq;
using testing::FloatNear;
using testing::Pointwise;

std::unique_ptr<Rig> OpenRig(const SessionStateSpec& state) {
  std::string why;
  auto rig = Rig::Open("ref", state, &why);
  EXPECT_NE(rig, nullptr) << why;
  return rig;
}

Matrix Of(int64_t rows, int64_t cols, std::vector<float> values) {
  Matrix m(rows, cols);
  m.values = std::move(values);
  return m;
}

std::unique_ptr<PreparedLinear> PrepareFloat(Rig& rig, const Matrix& w, std::span<const float> bias = {},
                                             LinearRole role = LinearRole::kPlain) {
  LinearSpec spec{.name = "w", .role = role, .blocks = {}};
  const int64_t blocks = role == LinearRole::kGateUp ? 2 : 1;
  for (int64_t b = 0; b < blocks; ++b) {
    spec.blocks.push_back({.weight = {.format = {.kind = quant::FormatKind::kFloat, .dtype = DType::kF32},
                                      .rows = w.rows / blocks,
                                      .cols = w.cols,
                                      .data = w.values.data() + b * (w.rows / blocks) * w.cols},
                           .bias = bias});
  }
  auto made = rig.device().Prepare(spec);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(RefLinear, MultipliesRowsByTransposedWeightAndAddsTheBias) {
  auto rig = OpenRig(test::SmallState(4, 4));
  const Matrix w = Of(2, 3, {1, 2, 3, -1, 0, 0.5f});
  const std::vector<float> bias = {10, 20};
  const auto weight = PrepareFloat(*rig, w, bias);
  const View x = rig->Put(Of(2, 3, {1, 1, 1, 2, 0, -4}));
  const View out = rig->Poisoned(2, 2);
  rig->Run(nullptr, nullptr, [&](Stream& s) { s.Linear({.x = x, .weight = weight.get(), .out = out}); });
  EXPECT_THAT(rig->Get(out).values, ElementsAre(16, 19.5f, 0, 16));
}

TEST(RefLinear, EpiloguesAreExactGeluAndAddition) {
  auto rig = OpenRig(test::SmallState(4, 4));
  const Matrix w = Of(1, 1, {1});
  const auto weight = PrepareFloat(*rig, w);
  const View x = rig->Put(Of(2, 1, {1, -2}));
  const View gelu = rig->Poisoned(2, 1);
  const View sum = rig->Put(Of(2, 1, {100, 200}));
  rig->Run(nullptr, nullptr, [&](Stream& s) {
    s.Linear({.x = x, .weight = weight.get(), .out = gelu, .epilogue = Epilogue::kGelu});
    s.Linear({.x = x, .weight = weight.get(), .out = sum, .epilogue = Epilogue::kAddTo});
  });
  // Phi(1) = 0.8413447, -2 Phi(-2) = -0.0455003; the tanh form would give 0.8411920 and -0.0454023.
  EXPECT_THAT(rig->Get(gelu).values, ElementsAre(FloatNear(0.8413447f, 1e-7f), FloatNear(-0.04550026f, 1e-8f)));
  EXPECT_THAT(rig->Get(sum).values, ElementsAre(101, 198));
}

TEST(RefLinear, Int8ActivationsGiveTheWorkedExampleOfTheFormatPage) {
  // docs/model.md 12.5 has a group of 8; with one scale per row, 8 columns of 8w are one such group.
  auto rig = OpenRig(test::SmallState(4, 4));
  const std::vector<int8_t> codes = {-101, -63, -24, 0, 14, 44, 83, 127};
  const std::vector<uint16_t> scale = {quant::F32ToBF16(0.00494384766f)};
  const quant::HostLinear w{.format = {.kind = quant::FormatKind::kInt8, .group = 0, .int8_activations = true},
                            .rows = 1,
                            .cols = 8,
                            .data = codes.data(),
                            .scale = scale.data()};
  auto weight = rig->device().Prepare({.name = "w", .role = LinearRole::kPlain, .blocks = {{.weight = w, .bias = {}}}});
  ASSERT_TRUE(weight.ok()) << weight.status().message();
  const View x = rig->Put(Of(1, 8, {0.9f, -0.4f, 0.1f, 0, -1.1f, 0.3f, 0.7f, 0.2f}));
  const View out = rig->Poisoned(1, 1);
  rig->Run(nullptr, nullptr, [&](Stream& s) { s.Linear({.x = x, .weight = weight->get(), .out = out}); });
  EXPECT_NEAR(rig->Get(out).at(0, 0), 0.0604894f, 5e-8f);
}

TEST(RefLinear, EveryFormatMultipliesTheDequantizedWeight) {
  for (const quant::Format& format : test::AllFormats()) {
    auto rig = OpenRig(test::SmallState(4, 4));
    ASSERT_TRUE(rig->device().Supports(format)) << FormatName(format);
    Random random(7);
    const test::TestWeight w(format, 8, 256, true, random);
    auto weight = rig->device().Prepare({.name = "w", .role = LinearRole::kPlain, .blocks = {w.block()}});
    ASSERT_TRUE(weight.ok()) << weight.status().message();
    Matrix x(1, 256);
    x.at(0, 37) = 1.0f;  // picks column 37; exact in int8 too (scale 1/255, code 255)
    const View out = rig->Poisoned(1, 8);
    const View in = rig->Put(x);
    rig->Run(nullptr, nullptr, [&](Stream& s) { s.Linear({.x = in, .weight = weight->get(), .out = out}); });
    for (int64_t n = 0; n < 8; ++n) {
      const float value = w.Values().at(n, 37);
      // The integer form multiplies code * scale, not its bf16 rounding.
      const float allowed = format.int8_activations ? std::fabs(value) / 256 + 1e-6f : 1e-7f;
      EXPECT_NEAR(rig->Get(out).at(0, n) - w.bias()[static_cast<size_t>(n)], value, allowed + 2e-7f)
          << FormatName(format);
    }
  }
}

TEST(RefLinear, PairIsSiluOfGateTimesUp) {
  auto rig = OpenRig(test::SmallState(4, 4));
  const Matrix w = Of(4, 1, {1, 2, 10, 20});  // gate rows 0, 1; up rows 2, 3
  const auto weight = PrepareFloat(*rig, w, {}, LinearRole::kGateUp);
  const View x = rig->Put(Of(1, 1, {1}));
  const View out = rig->Poisoned(1, 2);
  rig->Run(nullptr, nullptr, [&](Stream& s) { s.LinearPair({.x = x, .weight = weight.get(), .out = out}); });
  EXPECT_THAT(rig->Get(out).values, ElementsAre(FloatNear(7.310586f, 1e-6f), FloatNear(35.231884f, 4e-6f)));
}

TEST(RefNorm, ScalesByRootMeanSquareGainAndTheRowsOwnDelay) {
  auto rig = OpenRig(test::SmallState(4, 4));
  const View x = rig->Put(Of(2, 2, {3, 4, 3, 4}));  // mean square 12.5
  const View gain = rig->Put(Of(1, 2, {1, 2}));
  const View scales = rig->Put(Of(3, 2, {1, 1, 9, 9, 2, 3}));
  const View out = rig->Poisoned(2, 2);
  BatchPlan plan = test::MakePlan({{0, 1, 0}, {1, 1, 0}}, 128);
  plan.delay_row = {2, 0};
  rig->Run(nullptr, &plan,
           [&](Stream& s) { s.RmsNorm({.x = x, .gain = gain, .scales = scales, .epsilon = 1e-5f, .out = out}); });
  const float r = 1.0f / std::sqrt(12.5f + 1e-5f);
  EXPECT_THAT(rig->Get(out).values, Pointwise(FloatEq(), {3 * r * 2, 4 * r * 6, 3 * r, 8 * r}));
}

TEST(RefRope, RotatesQAndKByThePlanAndLeavesV) {
  SessionStateSpec state = test::SmallState(4, 4);
  state.encoder = {.layers = 1, .kv_heads = 1, .head_dim = 4, .window = 4};
  auto rig = OpenRig(state);
  BatchPlan plan = test::MakePlan({{0, 1, 0}}, 4);
  plan.rope_cos = {0.0f, 1.0f};  // pair 0 by a quarter turn, pair 1 not at all
  plan.rope_sin = {1.0f, 0.0f};
  const Matrix qkv = Of(1, 12, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const View adjacent = rig->Put(qkv);
  const View half = rig->Put(qkv);
  rig->Run(&plan, nullptr, [&](Stream& s) {
    s.RopeStoreKv({.shape = {1, 1, 4}, .pairing = RopePairing::kAdjacent, .qkv = adjacent});
    s.RopeStoreKv({.shape = {1, 1, 4}, .pairing = RopePairing::kHalf, .qkv = half});
  });
  EXPECT_THAT(rig->Get(adjacent).values, ElementsAre(-2, 1, 3, 4, -6, 5, 7, 8, 9, 10, 11, 12));
  EXPECT_THAT(rig->Get(half).values, ElementsAre(-3, 2, 1, 4, -7, 6, 5, 8, 9, 10, 11, 12));
}

TEST(RefAttention, SeesItselfAndWindowMinusOneEarlierRowsAcrossCalls) {
  SessionStateSpec state = test::SmallState(4, 4);
  state.encoder = {.layers = 1, .kv_heads = 1, .head_dim = 2, .window = 3, .max_rows = 2};
  auto rig = OpenRig(state);
  ASSERT_TRUE(rig->state().Reserve(0, KvId::kEncoder, 100).ok());
  int64_t index = 0;
  for (int rows :
       {1, 2, 5, 1}) {  // q = k = 0: every visible row has equal weight, so the output is the mean of their v
    const BatchPlan plan = test::MakePlan({{0, rows, index}}, 2);
    Matrix qkv(rows, 6);
    for (int r = 0; r < rows; ++r) qkv.at(r, 4) = static_cast<float>(index + r);
    const View in = rig->Put(qkv);
    const View out = rig->Poisoned(rows, 2);
    rig->Run(&plan, nullptr, [&](Stream& s) {
      s.RopeStoreKv({.shape = {1, 1, 2}, .qkv = in});
      s.WindowAttention({.shape = {1, 1, 2}, .qkv = in, .out = out});
    });
    for (int r = 0; r < rows; ++r, ++index) {
      const auto i = static_cast<float>(index);
      EXPECT_FLOAT_EQ(rig->Get(out).at(r, 0), index < 2 ? i / 2 : i - 1) << "index " << index;
    }
  }
}

TEST(RefConv, CarriesTheTailAndBeginsWithZeros) {
  SessionStateSpec state = test::SmallState(4, 4);
  state.conv_channels[0] = 1;
  state.conv_channels[1] = 1;
  auto rig = OpenRig(state);
  const std::vector<float> w = {100, 10, 1};
  const std::vector<float> bias = {0};
  auto one = rig->device().PrepareConv({.name = "c",
                                        .weight = w.data(),
                                        .dtype = DType::kF32,
                                        .out_channels = 1,
                                        .in_channels = 1,
                                        .stride = 1,
                                        .bias = bias});
  auto two = rig->device().PrepareConv({.name = "c",
                                        .weight = w.data(),
                                        .dtype = DType::kF32,
                                        .out_channels = 1,
                                        .in_channels = 1,
                                        .stride = 2,
                                        .bias = bias});
  ASSERT_TRUE(one.ok() && two.ok());
  std::vector<float> stride_1;
  std::vector<float> stride_2;
  for (int call = 0; call < 2; ++call) {
    const BatchPlan plan = test::MakePlan({{0, 1, call}}, 64);
    const auto a = static_cast<float>(2 * call + 20);  // large, so that gelu(x) = x
    const View in = rig->Put(Of(2, 1, {a, a + 1}));
    const View out_1 = rig->Poisoned(2, 1);
    const View out_2 = rig->Poisoned(1, 1);
    rig->Run(&plan, nullptr, [&](Stream& s) {
      s.CausalConv1d({.index = 0, .weight = one->get(), .rows_per_plan_row = 2, .x = in, .out = out_1});
      s.CausalConv1d({.index = 1, .weight = two->get(), .rows_per_plan_row = 2, .x = in, .out = out_2});
    });
    for (float v : rig->Get(out_1).values) stride_1.push_back(v);
    for (float v : rig->Get(out_2).values) stride_2.push_back(v);
  }
  EXPECT_THAT(stride_1, ElementsAre(20, 221, 2232, 2343));
  EXPECT_THAT(stride_2, ElementsAre(221, 2343));
}

TEST(RefArgMax, TakesTheLowestIndexOnATieAndFeedsTheDeviceToken) {
  auto rig = OpenRig(test::SmallState(4, 4));
  BatchPlan plan = test::MakePlan({{2, 1, 0}, {0, 2, 0}}, 128);
  plan.head_rows = {0, 2};
  const View logits = rig->Put(Of(2, 4, {1, 7, 7, 0, -3, -2, -1, -1}));
  const View token = rig->PoisonedInts(2);
  rig->Run(nullptr, &plan, [&](Stream& s) { s.ArgMax({.logits = logits, .out = token}); });
  EXPECT_THAT(rig->GetInts(token), ElementsAre(1, 2));

  const Matrix table_values = Of(4, 1, {0, 10, 20, 30});
  const auto table = PrepareFloat(*rig, table_values, {}, LinearRole::kHead);
  BatchPlan next = test::MakePlan({{0, 1, 2}, {2, 2, 1}}, 128);
  next.token = {BatchPlan::kDeviceToken, 3, BatchPlan::kDeviceToken};
  next.audio_row = {1, 0, 1};
  const View audio = rig->Put(Of(2, 1, {1, 2}));
  const View out = rig->Poisoned(3, 1);
  rig->Run(nullptr, &next, [&](Stream& s) { s.Embed({.table = table.get(), .audio = audio, .out = out}); });
  EXPECT_THAT(rig->Get(out).values, ElementsAre(22, 31, 12));
}

TEST(RefDevice, RefusesBadWeightsNamingThem) {
  auto rig = OpenRig(test::SmallState(4, 4));
  const Matrix w = Of(2, 2, {1, 2, 3, 4});
  const quant::HostLinear good{.format = {.kind = quant::FormatKind::kFloat, .dtype = DType::kF32},
                               .rows = 2,
                               .cols = 2,
                               .data = w.values.data()};
  quant::HostLinear wide = good;
  wide.cols = 1;
  auto unequal = rig->device().Prepare({.name = "layer 3 qkv",
                                        .role = LinearRole::kQkv,
                                        .blocks = {{.weight = good, .bias = {}}, {.weight = wide, .bias = {}}}});
  ASSERT_FALSE(unequal.ok());
  EXPECT_EQ(unequal.status().code(), StatusCode::kInvalidModel);
  EXPECT_THAT(unequal.status().message(), testing::HasSubstr("layer 3 qkv"));
  auto single =
      rig->device().Prepare({.name = "g", .role = LinearRole::kGateUp, .blocks = {{.weight = good, .bias = {}}}});
  EXPECT_FALSE(single.ok());
}

TEST(RefDevice, ReportsMemoryThatRunsOutInsteadOfFailing) {
  auto rig = OpenRig(test::SmallState(4, 4));
  auto huge = rig->device().Allocate(int64_t{1} << 40, 1 << 20, DType::kF32);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(rig->device().Allocate(0, 1, DType::kF32).ok());
  SessionStateSpec state = test::SmallState(4, int64_t{1} << 50);
  auto made = rig->device().CreateSessionState(state);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kResourceExhausted);
}

using RefDeathTest = testing::Test;

TEST(RefDeathTest, ReadingADeviceTokenThatDoesNotExistIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto rig = OpenRig(test::SmallState(4, 4));
  const Matrix table_values = Of(4, 1, {0, 10, 20, 30});
  const auto table = PrepareFloat(*rig, table_values, {}, LinearRole::kHead);
  BatchPlan plan = test::MakePlan({{0, 1, 0}}, 128);
  plan.token = {BatchPlan::kDeviceToken};
  plan.audio_row = {0};
  const View out = rig->Poisoned(1, 1);
  EXPECT_DEATH(rig->Run(nullptr, &plan, [&](Stream& s) { s.Embed({.table = table.get(), .audio = {}, .out = out}); }),
               "token");
}

TEST(RefDeathTest, StoringRowsWithoutReserveIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto rig = OpenRig(test::SmallState(4, 4));
  const BatchPlan plan = test::MakePlan({{0, 1, 0}}, 64);
  const View qkv = rig->Put(Matrix(1, 6 * 64));
  const View out = rig->Poisoned(1, 2 * 64);
  EXPECT_DEATH(rig->Run(&plan, nullptr,
                        [&](Stream& s) {
                          s.WindowAttention({.shape = {2, 2, 64}, .qkv = qkv, .out = out});
                        }),
               "reserved");
}

}  // namespace
}  // namespace voxrt::backend
