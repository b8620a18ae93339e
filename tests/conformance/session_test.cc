// Session state of every backend, bit for bit: speculation with rollback, cloning, clearing, memory that held NaN,
// growth and accounting, convolution tails, device tokens.
#include <algorithm>
#include <cmath>

#include "backend/checks.h"
#include "fixture.h"
#include "support/sessions.h"

namespace voxrt::test {
namespace {

using backend::BatchPlan;
using backend::KvId;
using backend::PlanId;
using backend::Stream;
using backend::View;
using quant::DType;

constexpr DType kCacheTypes[] = {DType::kF32, DType::kBF16, DType::kI8};

class SessionConformance : public BackendTest {
 protected:
  AttentionRun DecoderRun() {
    return {.plan = PlanId::kDecoder, .heads = 4, .activation = activation(), .rotate = true};
  }
};

TEST_P(SessionConformance, RejectedRowsAreOverwrittenWithoutATrace) {
  Random random(41);
  for (DType kv : kCacheTypes) {
    const AttentionRun run = DecoderRun();
    dev().ResetState(SmallState(24, 40, kv));
    const Matrix truth = random.Normals(200, run.qkv_cols());
    const Matrix guesses = random.Normals(200, run.qkv_cols(), 5.0f);
    const Matrix expected = run.Session(dev(), 0, truth, {1});
    int64_t at = 0;  // rows accepted so far
    for (int call = 0; at < truth.rows; ++call) {
      // Up to max_rows = 8 rows, of which the first `right` are the true ones; the rest is rejected.
      const int64_t right = std::min<int64_t>(1 + call % 8, truth.rows - at);
      const int64_t rows = std::min<int64_t>(8, truth.rows - at);
      Matrix mixed = guesses;
      std::copy_n(truth.values.begin() + at * truth.cols, right * truth.cols, mixed.values.begin() + at * truth.cols);
      const Matrix out = run.Call(dev(), {{.slot = 1, .qkv = &mixed, .first = at, .rows = rows}});
      ExpectSameBits(out.Rows(0, right), expected.Rows(at, right), "row " + std::to_string(at));
      at += right;
    }
  }
}

TEST_P(SessionConformance, ACloneContinuesLikeItsSourceAndIsIndependentOfIt) {
  Random random(42);
  for (DType kv : kCacheTypes) {
    for (int64_t cut : {1, 17, 46, 47, 120}) {  // before, at and beyond the wrap of the ring of 47 rows
      const AttentionRun run = DecoderRun();
      dev().ResetState(SmallState(24, 40, kv));
      const Matrix rows = random.Normals(cut + 60, run.qkv_cols());
      const Matrix other = random.Normals(cut + 60, run.qkv_cols(), 9.0f);
      const Matrix junk = random.Normals(70, run.qkv_cols());
      run.Session(dev(), 1, junk, {8});  // the target held another session
      dev().state().Clear(1);
      for (int64_t at = 0; at < cut; ++at) run.Call(dev(), {{.slot = 0, .qkv = &rows, .first = at, .rows = 1}});
      ASSERT_TRUE(dev().state().Reserve(1, KvId::kDecoder, cut).ok());
      dev().CloneState(0, 1, 0, cut);
      const Matrix diverging = run.Session(dev(), 0, other, {3}, cut);  // the source goes its own way first
      const Matrix clone = run.Session(dev(), 1, rows, {4}, cut);
      ASSERT_GT(diverging.rows, 0);
      dev().state().Clear(2);
      const Matrix expected = run.Session(dev(), 2, rows, {1});
      ExpectSameBits(clone, expected.Rows(cut, 60), "cloned at " + std::to_string(cut));
    }
  }
}

TEST_P(SessionConformance, AClearedOrReleasedSlotIsLikeNewEvenAfterNaN) {
  Random random(43);
  for (DType kv : kCacheTypes) {
    AttentionRun run = DecoderRun();
    dev().ResetState(SmallState(24, 40, kv));
    const Matrix rows = random.Normals(100, run.qkv_cols());
    const Matrix expected = run.Session(dev(), 0, rows, {4});
    Matrix poison(100, run.qkv_cols());
    for (float& value : poison.values) value = kv == DType::kI8 ? 1e30f : std::nanf("");
    for (bool release : {false, true}) {
      run.Session(dev(), 0, poison, {5});
      if (release) {
        dev().state().Release(0);
        ASSERT_TRUE(dev().state().Reserve(1, KvId::kDecoder, 1000).ok());  // may get the released memory
      }
      dev().state().Clear(0);
      dev().state().Clear(1);
      ExpectSameBits(run.Session(dev(), 0, rows, {1, 6}), expected, release ? "released slot" : "cleared slot");
      ExpectSameBits(run.Session(dev(), 1, rows, {4}), expected, "neighbour");
    }
  }
}

TEST_P(SessionConformance, ASessionOfNaNDoesNotReachItsNeighbours) {
  Random random(44);
  const AttentionRun run = DecoderRun();
  dev().ResetState(SmallState(24, 40));
  const Matrix rows = random.Normals(60, run.qkv_cols());
  const Matrix expected = run.Session(dev(), 0, rows, {2});
  dev().state().Clear(0);
  Matrix poison(60, run.qkv_cols());
  for (float& value : poison.values) value = std::nanf("");
  for (int64_t at = 0; at < 60; at += 2) {
    const Matrix out = run.Call(dev(), {{.slot = 2, .qkv = &poison, .first = at, .rows = 2},
                                        {.slot = 0, .qkv = &rows, .first = at, .rows = 2}});
    ExpectSameBits(out.Rows(2, 2), expected.Rows(at, 2), "row " + std::to_string(at));
  }
}

TEST_P(SessionConformance, ReservingEarlyOrJustInTimeGivesTheSameBits) {
  Random random(45);
  AttentionRun run = DecoderRun();
  dev().ResetState(SmallState(24, 40));
  const Matrix rows = random.Normals(130, run.qkv_cols());
  const Matrix grown = run.Session(dev(), 0, rows, {1, 2});                      // reserves before each call
  ASSERT_TRUE(dev().state().Reserve(1, KvId::kDecoder, int64_t{1} << 40).ok());  // stops growing at the ring's capacity
  run.reserve = false;
  ExpectSameBits(run.Session(dev(), 1, rows, {1, 2}), grown, "reserved at once");
}

TEST_P(SessionConformance, BytesFollowReserveAndRelease) {
  for (DType kv : kCacheTypes) {
    dev().ResetState(SmallState(24, 40, kv));
    auto& state = dev().state();
    const int64_t empty = state.BytesNow(0);
    int64_t before = empty;
    for (int64_t end : {1, 20, 47, 48, 4000}) {
      ASSERT_TRUE(state.Reserve(0, KvId::kDecoder, end).ok());
      EXPECT_GE(state.BytesNow(0), before) << "rows < " << end;
      EXPECT_LE(state.BytesNow(0), state.BytesAtMost());
      before = state.BytesNow(0);
      ASSERT_TRUE(state.Reserve(0, KvId::kDecoder, 1).ok());  // never shrinks
      EXPECT_EQ(state.BytesNow(0), before);
    }
    ASSERT_TRUE(state.Reserve(0, KvId::kEncoder, 4000).ok());
    EXPECT_EQ(state.BytesNow(0), state.BytesAtMost()) << "rings full";
    // At least the formula of docs/model.md 8.1: window - 1 + max_rows rows of K and V.
    // A device of shorter activations may keep fp32 rows in the type they come in: nothing is lost.
    const auto element = static_cast<int64_t>(
        std::min(quant::DTypeBytes(kv), kv == DType::kF32 ? quant::DTypeBytes(activation()) : size_t{4}));
    EXPECT_GE(state.BytesNow(0), 2 * 2 * (64 * 27 + 128 * 47) * element);
    EXPECT_EQ(state.BytesNow(1), empty) << "another slot";
    state.Release(0);
    EXPECT_EQ(state.BytesNow(0), empty) << "after release";
  }
}

// Both convolutions of the stem over one session, in calls of the given sizes.
class ConvSessions : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (!opened()) return;
    Random random(46);
    frames_ = random.Normals(600, 16);
    for (int index : {0, 1}) {
      weights_[index] =
          std::make_unique<TestWeight>(quant::Format{.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16},
                                       24 + 16 * index, (index == 0 ? 16 : 24) * 3, true, random);
      auto made = dev().device().PrepareConv({.name = "conv",
                                              .weight = weights_[index]->weight().data,
                                              .dtype = DType::kBF16,
                                              .out_channels = 24 + 16 * index,
                                              .in_channels = index == 0 ? 16 : 24,
                                              .stride = index + 1,
                                              .bias = weights_[index]->bias()});
      ASSERT_TRUE(made.ok()) << made.status().message();
      convs_[index] = std::move(made).value();
    }
  }

  // Frames [2 first, 2 (first + rows)) of each feed -> rows of [rows, 40].
  Matrix Call(const std::vector<GroupSpec>& groups) {
    const BatchPlan plan = MakePlan(groups, 64);
    Matrix x(plan.rows * 2, 16);
    auto at = x.values.begin();
    for (const GroupSpec& g : groups) at = std::copy_n(frames_.values.begin() + g.first_index * 32, g.rows * 32, at);
    const View in = dev().Put(x, DType::kF32, 4);
    const View middle = dev().Poisoned(plan.rows * 2, 24, activation());
    const View out = dev().Poisoned(plan.rows, 40, activation(), 4);
    dev().Run(&plan, nullptr, [&](Stream& s) {
      s.CausalConv1d({.index = 0, .weight = convs_[0].get(), .rows_per_plan_row = 2, .x = in, .out = middle});
      s.CausalConv1d({.index = 1, .weight = convs_[1].get(), .rows_per_plan_row = 2, .x = middle, .out = out});
    });
    return dev().Get(out);
  }

  Matrix frames_;
  std::unique_ptr<TestWeight> weights_[2];
  std::unique_ptr<backend::PreparedConv> convs_[2];
};

TEST_P(ConvSessions, AnySplitIntoCallsAndAnyNeighboursGiveTheSameBits) {
  const Matrix whole = Call({{0, 300, 0}});
  for (const std::vector<int>& sizes : {std::vector<int>{1}, {4}, {64}, {3, 1, 130}}) {
    dev().state().Clear(1);
    dev().state().Clear(2);
    size_t call = 0;
    int neighbour = 0;
    for (int at = 0; at < 300;) {
      const int rows = std::min(sizes[call++ % sizes.size()], 300 - at);
      const Matrix out = Call({{2, 2, neighbour}, {1, rows, at}});
      ExpectSameBits(out.Rows(2, rows), whole.Rows(at, rows),
                     "calls of " + std::to_string(sizes[0]) + ", row " + std::to_string(at));
      ExpectSameBits(out.Rows(0, 2), whole.Rows(neighbour, 2), "neighbour");
      at += rows;
      neighbour = (neighbour + 2) % 298;
      if (neighbour == 0) dev().state().Clear(2);
    }
  }
}

TEST_P(ConvSessions, TailsAreClonedAndCleared) {
  const Matrix whole = Call({{0, 20, 0}});
  Call({{1, 7, 0}});
  dev().CloneState(1, 2, 0, 0);
  Call({{1, 3, 100}});  // the source goes on with something else
  ExpectSameBits(Call({{2, 13, 7}}), whole.Rows(7, 13), "clone");
  dev().state().Clear(2);
  ExpectSameBits(Call({{2, 20, 0}}), whole, "cleared");
}

TEST_P(SessionConformance, DeviceTokensBelongToTheirSlotAndAreCloned) {
  Random random(47);
  const TestWeight table({.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16}, 640, 128, false, random);
  auto prepared =
      dev().device().Prepare({.name = "table", .role = backend::LinearRole::kHead, .blocks = {table.block()}});
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  BatchPlan plan = MakePlan({{1, 3, 0}, {0, 1, 4}}, 128);
  plan.head_rows = {0, 2, 3};  // two of slot 1: the last one counts
  Matrix logits(3, 640);
  logits.at(0, 5) = logits.at(1, 600) = logits.at(2, 17) = 1.0f;
  const View in = dev().Put(logits);
  const View out = dev().PoisonedInts(3);
  dev().Run(nullptr, &plan, [&](Stream& s) { s.ArgMax({.logits = in, .out = out}); });
  dev().CloneState(1, 2, 0, 0);

  BatchPlan next = MakePlan({{0, 1, 5}, {2, 1, 3}, {1, 2, 3}}, 128);
  next.token = {BatchPlan::kDeviceToken, BatchPlan::kDeviceToken, BatchPlan::kDeviceToken, 9};
  next.audio_row = {0, 0, 0, 0};
  const View embedded = dev().Poisoned(4, 128);
  dev().Run(nullptr, &next, [&](Stream& s) { s.Embed({.table = prepared->get(), .audio = {}, .out = embedded}); });
  const Matrix values = table.Values();
  Matrix expected(4, 128);
  const int64_t tokens[] = {17, 600, 600, 9};
  for (int64_t r = 0; r < 4; ++r)
    std::copy_n(values.values.begin() + tokens[r] * 128, 128, expected.values.begin() + r * 128);
  ExpectSameBits(dev().Get(embedded), expected, "embedded device tokens");
}

INSTANTIATE_TEST_SUITE_P(Backends, SessionConformance, testing::ValuesIn(AllBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, ConvSessions, testing::ValuesIn(AllBackends()), BackendName);

}  // namespace
}  // namespace voxrt::test
