// Attention of every backend against ref, in every cache type; chunk invariance bit for bit.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/checks.h"
#include "fixture.h"
#include "support/sessions.h"
#include "support/tolerance.h"

namespace voxrt::test {
namespace {

using backend::PlanId;
using quant::DType;

class AttentionConformance : public BackendTest {};

TEST_P(AttentionConformance, EqualsRefInEveryCacheTypeWhileTheRingWraps) {
  Random random(31);
  for (DType kv : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (PlanId plan : {PlanId::kEncoder, PlanId::kDecoder}) {
      for (int heads : {2, 8}) {
        const AttentionRun run{.plan = plan, .heads = heads, .activation = activation()};
        dev().ResetState(SmallState(24, 40, kv));
        ref().ResetState(SmallState(24, 40, kv));
        const Matrix qkv = random.Normals(150, run.qkv_cols());
        const Matrix expected = run.Session(ref(), 1, qkv, {1, 4, 8});
        const Matrix actual = run.Session(dev(), 1, qkv, {1, 4, 8});
        // K and V are stored in the same way by both, so what they are rounded to only changes magnitudes by a
        // little: 1.01 for bf16 and 8 bits of the largest for int8 are inside the factor 4 of the sums.
        const Matrix allowed = AttentionTolerance(run, plan == PlanId::kEncoder ? 24 : 40, qkv, expected);
        ExpectWithin(actual, expected, allowed,
                     std::string(DTypeName(kv)) + " cache, " + std::to_string(heads) + " heads");
      }
    }
  }
}

// What narrower caches cost, relative to the outputs of fp32 caches (docs/quantization.md). K and V arrive, unrotated,
// in the activations' type: only a cache narrower than that can change them.
TEST_P(AttentionConformance, NarrowCachesKeepTheOutputsWithinTheirShareOfError) {
  Random random(37);
  for (PlanId plan : {PlanId::kEncoder, PlanId::kDecoder}) {
    const AttentionRun run{.plan = plan, .heads = 8, .activation = activation()};
    const Matrix qkv = random.Normals(200, run.qkv_cols());
    dev().ResetState(SmallState(24, 40, DType::kF32));
    const Matrix exact = run.Session(dev(), 0, qkv, {4});
    for (const auto& [kv, most] : {std::pair(DType::kBF16, 0.004), {DType::kI8, 0.02}}) {
      dev().ResetState(SmallState(24, 40, kv));
      const Matrix narrow = run.Session(dev(), 0, qkv, {4});
      double error = 0.0;
      double sum = 0.0;
      for (size_t i = 0; i < exact.values.size(); ++i) {
        error += std::pow(narrow.values[i] - exact.values[i], 2);
        sum += std::pow(exact.values[i], 2);
      }
      const double relative_rms = std::sqrt(error / sum);
      RecordProperty(std::string(plan == PlanId::kEncoder ? "encoder_" : "decoder_") + std::string(DTypeName(kv)),
                     std::to_string(relative_rms));
      EXPECT_LT(relative_rms, most) << DTypeName(kv);
      if (quant::DTypeBytes(kv) < quant::DTypeBytes(activation())) {
        EXPECT_GT(relative_rms, most / 20) << DTypeName(kv);  // else the cache is not of this type
      } else {
        EXPECT_EQ(relative_rms, 0.0) << DTypeName(kv) << " holds every value of the activations";
      }
    }
  }
}

TEST_P(AttentionConformance, EqualsRefWithLargeScoresAndOneDominatingKey) {
  Random random(32);
  const AttentionRun run{.activation = activation()};
  Matrix qkv = random.Normals(60, run.qkv_cols());
  for (int64_t r = 0; r < qkv.rows; ++r) {
    for (int64_t c = 0; c < 4 * 64; ++c) qkv.at(r, c) *= r % 7 == 0 ? 12.0f : 0.3f;  // scores up to some hundreds
  }
  const Matrix expected = run.Session(ref(), 0, qkv, {4});
  ExpectWithin(run.Session(dev(), 0, qkv, {4}), expected, AttentionTolerance(run, 24, qkv, expected), "large scores");
}

TEST_P(AttentionConformance, EqualsRefAtIndicesBeyond32Bits) {
  Random random(36);
  const AttentionRun run{.activation = activation()};
  dev().ResetState(SmallState(24, 40));
  ref().ResetState(SmallState(24, 40));
  const Matrix qkv = random.Normals(80, run.qkv_cols());
  const auto far = [&](Rig& rig) {
    const int64_t offset = (int64_t{1} << 33) + 5;
    const Matrix zeros(24, run.qkv_cols());  // the rows before: a row far out sees a full window
    run.Call(rig, {{.slot = 0, .qkv = &zeros, .first = 0, .rows = 24, .offset = offset - 24}});
    Matrix out(0, 0);
    for (int64_t at = 0; at < qkv.rows; at += 4) {
      const Matrix part = run.Call(rig, {{.slot = 0, .qkv = &qkv, .first = at, .rows = 4, .offset = offset}});
      out.cols = part.cols;
      out.rows += part.rows;
      out.values.insert(out.values.end(), part.values.begin(), part.values.end());
    }
    return out;
  };
  const auto [actual, expected] = Both(far);
  const Matrix allowed = AttentionTolerance(run, 24, qkv, expected);
  ExpectWithin(actual.Rows(24, 56), expected.Rows(24, 56), allowed.Rows(24, 56), "rows with full windows of their own");
}

class AttentionInvariance : public BackendTest {};

TEST_P(AttentionInvariance, AnySplitIntoCallsGivesTheSameBits) {
  Random random(33);
  for (DType kv : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (PlanId plan : {PlanId::kEncoder, PlanId::kDecoder}) {
      const AttentionRun run{.plan = plan, .heads = 4, .activation = activation(), .rotate = true};
      dev().ResetState(SmallState(24, 40, kv));
      const Matrix qkv = random.Normals(300, run.qkv_cols());  // ring of 27 or 47 rows: wraps many times
      const Matrix expected = run.Session(dev(), 0, qkv, {1});
      for (const auto& sizes : {std::vector<int64_t>{4}, {8}, {64}, {300}, {3, 1, 7, 130, 5}, {27, 28}, {47, 48, 2}}) {
        dev().state().Clear(0);
        ExpectSameBits(run.Session(dev(), 0, qkv, sizes), expected,
                       std::string(DTypeName(kv)) + " cache, calls of " + std::to_string(sizes[0]) + " rows");
      }
    }
  }
}

TEST_P(AttentionInvariance, NeighboursInTheCallDoNotChangeARow) {
  Random random(34);
  for (PlanId plan : {PlanId::kEncoder, PlanId::kDecoder}) {
    const AttentionRun run{.plan = plan, .heads = 4, .activation = activation(), .rotate = true};
    dev().ResetState(SmallState(24, 40));
    const Matrix a = random.Normals(120, run.qkv_cols());
    const Matrix b = random.Normals(120, run.qkv_cols());
    const Matrix c = random.Normals(120, run.qkv_cols(), 30.0f);
    const Matrix alone = run.Session(dev(), 0, a, {4});
    for (int slot : {0, 1, 2}) dev().state().Clear(slot);
    int64_t at = 0;
    int64_t at_b = 0;
    int64_t at_c = 0;
    for (int call = 0; at < a.rows; ++call) {
      const int64_t rows = std::min<int64_t>(1 + call % 5, a.rows - at);
      std::vector<Feed> feeds;
      const int64_t rows_b = std::min<int64_t>(call % 3 == 0 ? 0 : 1 + call % 7, b.rows - at_b);
      const int64_t rows_c = std::min<int64_t>(call % 2 == 0 ? 0 : 6, c.rows - at_c);
      if (rows_b > 0) feeds.push_back({.slot = 2, .qkv = &b, .first = at_b, .rows = rows_b});
      feeds.push_back({.slot = 0, .qkv = &a, .first = at, .rows = rows});
      if (rows_c > 0) feeds.push_back({.slot = 1, .qkv = &c, .first = at_c, .rows = rows_c});
      const Matrix out = run.Call(dev(), feeds);
      ExpectSameBits(out.Rows(rows_b, rows), alone.Rows(at, rows), "call " + std::to_string(call));
      at += rows;
      at_b += rows_b;
      at_c += rows_c;
    }
  }
}

TEST_P(AttentionInvariance, ViewsAndKeysMadeForMoreRowsDoNotChangeARow) {
  Random random(35);
  for (PlanId plan : {PlanId::kEncoder, PlanId::kDecoder}) {
    AttentionRun run{.plan = plan, .heads = 4, .activation = activation(), .rotate = true};
    dev().ResetState(SmallState(24, 40));
    const Matrix qkv = random.Normals(90, run.qkv_cols());
    const Matrix expected = run.Session(dev(), 0, qkv, {3});
    dev().state().Clear(0);
    run.spare_rows = 5;
    ExpectSameBits(run.Session(dev(), 0, qkv, {3}), expected, "5 spare rows of NaN");
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionConformance);
INSTANTIATE_TEST_SUITE_P(Backends, AttentionConformance, testing::ValuesIn(BackendsBesidesRef()), BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, AttentionInvariance, testing::ValuesIn(AllBackends()), BackendName);

}  // namespace
}  // namespace voxrt::test
