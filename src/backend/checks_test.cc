#include "backend/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::backend {
namespace {

using quant::DType;
using quant::FormatKind;
using testing::HasSubstr;

quant::HostLinear Weight(FormatKind kind, int64_t rows, int64_t cols, int group) {
  static constexpr uint16_t kScale = 0;  // never read by validation
  return {.format = {.kind = kind, .dtype = DType::kBF16, .group = group},
          .rows = rows,
          .cols = cols,
          .data = &kScale,
          .scale = &kScale};
}

LinearSpec Spec(std::vector<LinearBlock> blocks, LinearRole role = LinearRole::kPlain) {
  return {.name = "layers.7.w", .role = role, .blocks = std::move(blocks)};
}

TEST(ValidateLinear, AcceptsTheShapesOfEveryFormat) {
  EXPECT_TRUE(Validate(Spec({{.weight = Weight(FormatKind::kFloat, 3, 5, 0), .bias = {}}})).ok());
  EXPECT_TRUE(Validate(Spec({{.weight = Weight(FormatKind::kInt4, 3, 64, 32), .bias = {}}})).ok());
  EXPECT_TRUE(Validate(Spec({{.weight = Weight(FormatKind::kInt4Tile, 8, 128, 32), .bias = {}}})).ok());
  EXPECT_TRUE(Validate(Spec({{.weight = Weight(FormatKind::kInt8, 3, 5, 0), .bias = {}}})).ok());
}

TEST(ValidateLinear, NamesTheWeightAndTheRuleItBreaks) {
  const struct {
    quant::HostLinear weight;
    const char* expected;
  } cases[] = {
      {Weight(FormatKind::kFloat, 0, 5, 0), "empty"},
      {Weight(FormatKind::kInt4, 3, 65, 32), "multiple of the group"},
      {Weight(FormatKind::kInt4, 3, 48, 16), "multiples of 32"},
      {Weight(FormatKind::kInt4, 3, 64, 0), "multiple of the group"},
      {Weight(FormatKind::kInt4Tile, 9, 128, 32), "rows % 8"},
      {Weight(FormatKind::kInt4Tile, 8, 64, 32), "columns % 128"},
      {Weight(FormatKind::kInt8, int64_t{1} << 40, int64_t{1} << 40, 0), "too large"},
  };
  for (const auto& c : cases) {
    const Status status = Validate(Spec({{.weight = c.weight, .bias = {}}}));
    EXPECT_EQ(status.code(), StatusCode::kInvalidModel);
    EXPECT_THAT(status.message(), HasSubstr(c.expected));
    EXPECT_THAT(status.message(), HasSubstr("layers.7.w"));
  }
  quant::HostLinear no_scale = Weight(FormatKind::kInt8, 3, 4, 0);
  no_scale.scale = nullptr;
  EXPECT_THAT(Validate(Spec({{.weight = no_scale, .bias = {}}})).message(), HasSubstr("no scales"));
}

TEST(ValidateLinear, ChecksBiasBlocksAndRoles) {
  const std::vector<float> bias(4);
  const quant::HostLinear w = Weight(FormatKind::kFloat, 3, 5, 0);
  EXPECT_THAT(Validate(Spec({{.weight = w, .bias = bias}})).message(), HasSubstr("bias has 4 values, expected 3"));
  EXPECT_FALSE(Validate(Spec({})).ok());
  EXPECT_FALSE(Validate(Spec({{.weight = w, .bias = {}}}, LinearRole::kGateUp)).ok());
  EXPECT_TRUE(Validate(Spec({{.weight = w, .bias = {}}, {.weight = w, .bias = {}}}, LinearRole::kGateUp)).ok());
  EXPECT_FALSE(
      Validate(Spec({{.weight = w, .bias = {}}, {.weight = Weight(FormatKind::kFloat, 3, 6, 0), .bias = {}}})).ok());
}

TEST(ValidateState, RefusesCacheTypesAndSizesThatCannotBe) {
  SessionStateSpec state{
      .max_sessions = 1, .encoder = {.layers = 1, .kv_heads = 1, .head_dim = 64, .window = 8}, .decoder = {}};
  EXPECT_TRUE(Validate(state).ok());
  SessionStateSpec half = state;
  half.encoder.dtype = DType::kF16;
  EXPECT_EQ(Validate(half).code(), StatusCode::kInvalidArgument);
  SessionStateSpec odd = state;
  odd.encoder.head_dim = 63;
  EXPECT_FALSE(Validate(odd).ok());
  SessionStateSpec huge = state;
  huge.encoder.window = INT64_MAX;
  EXPECT_EQ(Validate(huge).code(), StatusCode::kResourceExhausted);
  SessionStateSpec none = state;
  none.max_sessions = 0;
  EXPECT_FALSE(Validate(none).ok());
}

TEST(ValidateAllocation, RefusesEmptyAndOverflowingSizes) {
  EXPECT_TRUE(ValidateAllocation(3, 5, DType::kF32).ok());
  EXPECT_FALSE(ValidateAllocation(0, 5, DType::kF32).ok());
  EXPECT_FALSE(ValidateAllocation(3, -1, DType::kF32).ok());
  EXPECT_EQ(ValidateAllocation(INT64_MAX, INT64_MAX, DType::kF32).code(), StatusCode::kResourceExhausted);
}

class PlanDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    state_.max_sessions = 4;
    plan_.groups = {{.slot = 1, .row_begin = 0, .row_count = 2}, {.slot = 0, .row_begin = 2, .row_count = 1}};
    plan_.rows = 3;
    plan_.token = {1, BatchPlan::kDeviceToken, 2};
    plan_.head_rows = {0, 2};
  }
  void Check() { CheckPlan(PlanId::kDecoder, plan_, state_); }

  SessionStateSpec state_;
  BatchPlan plan_;
};

TEST_F(PlanDeathTest, AGoodPlanPasses) { Check(); }

TEST_F(PlanDeathTest, AGapBetweenGroupsIsABug) {
  plan_.groups[1].row_begin = 3;
  EXPECT_DEATH(Check(), "row_begin == next_row");
}

TEST_F(PlanDeathTest, ASlotInTwoGroupsIsABug) {
  plan_.groups[1].slot = 1;
  EXPECT_DEATH(Check(), "seen");
}

TEST_F(PlanDeathTest, ASlotBeyondTheStateIsABug) {
  plan_.groups[1].slot = 4;
  EXPECT_DEATH(Check(), "max_sessions");
}

TEST_F(PlanDeathTest, RowsOutsideEveryGroupAreABug) {
  plan_.rows = 4;
  plan_.token.push_back(0);
  EXPECT_DEATH(Check(), "next_row == plan.rows");
}

TEST_F(PlanDeathTest, HeadRowsOutOfOrderOrRangeAreABug) {
  plan_.head_rows = {2, 1};
  EXPECT_DEATH(Check(), "row > previous");
  plan_.head_rows = {3};
  EXPECT_DEATH(Check(), "row < plan.rows");
}

TEST_F(PlanDeathTest, ShortTokenListIsABug) {
  plan_.token.pop_back();
  EXPECT_DEATH(Check(), "token.size");
}

class OpDeathTest : public testing::Test {
 protected:
  OpDeathTest() : checker_({.max_encoder_rows = 8, .max_decoder_rows = 8, .state = nullptr}, State(), {}) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  static SessionStateSpec State() {
    return {.max_sessions = 2,
            .encoder = {.layers = 1, .kv_heads = 1, .head_dim = 4, .window = 8},
            .decoder = {},
            .conv_channels = {3, 5}};
  }
  View Of(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
    return {.data = memory_, .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
  }

  OpChecker checker_;
  float memory_[1] = {};  // checks never read elements
};

TEST_F(OpDeathTest, LinearShapesMustFitTheWeight) {
  const PreparedLinear w(6, 4, LinearRole::kPlain);
  checker_.Check(LinearArgs{.x = Of(2, 4), .weight = &w, .out = Of(2, 6)});
  EXPECT_DEATH(checker_.Check(LinearArgs{.x = Of(2, 5), .weight = &w, .out = Of(2, 6)}), "cols");
  EXPECT_DEATH(checker_.Check(LinearArgs{.x = Of(2, 4), .weight = &w, .out = Of(3, 6)}), "rows");
  EXPECT_DEATH(checker_.Check(LinearArgs{.x = Of(2, 4, DType::kBF16), .weight = &w, .out = Of(2, 6)}), "IsActivation");
  EXPECT_DEATH(checker_.Check(LinearPairArgs{.x = Of(2, 4), .weight = &w, .out = Of(2, 3)}), "kGateUp");
}

TEST_F(OpDeathTest, ViewsOfPlannedOperationsHoldThePlan) {
  BatchPlan plan;
  plan.groups = {{.slot = 0, .row_begin = 0, .row_count = 3}};
  plan.rows = 3;
  plan.rope_cos.resize(6);
  plan.rope_sin.resize(6);
  checker_.SetPlan(PlanId::kEncoder, plan);
  checker_.Check(RopeStoreKvArgs{.shape = {2, 1, 4}, .qkv = Of(3, 16)});
  checker_.Check(RopeStoreKvArgs{.shape = {2, 1, 4}, .qkv = Of(8, 16)});  // made for a larger key
  EXPECT_DEATH(checker_.Check(RopeStoreKvArgs{.shape = {2, 1, 4}, .qkv = Of(2, 16)}), "rows");
  EXPECT_DEATH(checker_.Check(RopeStoreKvArgs{.layer = 1, .shape = {2, 1, 4}, .qkv = Of(3, 16)}), "layers");
  EXPECT_DEATH(checker_.Check(RopeStoreKvArgs{.shape = {2, 2, 4}, .qkv = Of(3, 24)}), "kv_heads");
}

TEST_F(OpDeathTest, PlansAreLimitedByTheStream) {
  BatchPlan plan;
  plan.groups = {{.slot = 0, .row_begin = 0, .row_count = 9}};
  plan.rows = 9;
  EXPECT_DEATH(checker_.SetPlan(PlanId::kEncoder, plan), "max_encoder_rows");
}

TEST_F(OpDeathTest, ConvolutionsMatchTheStatesTails) {
  const PreparedConv one(7, 3, 1);
  checker_.Check(CausalConv1dArgs{.index = 0, .weight = &one, .x = Of(2, 3), .out = Of(2, 7)});
  EXPECT_DEATH(checker_.Check(CausalConv1dArgs{.index = 1, .weight = &one, .x = Of(2, 3), .out = Of(2, 7)}),
               "tail_rows");
  const PreparedConv other(7, 4, 1);
  EXPECT_DEATH(checker_.Check(CausalConv1dArgs{.index = 0, .weight = &other, .x = Of(2, 4), .out = Of(2, 7)}),
               "conv_channels");
}

}  // namespace
}  // namespace voxrt::backend
