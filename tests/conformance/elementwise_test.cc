// Norm, rotation, elementwise operations, convolution and arg-max of every backend against ref.
#include <cmath>

#include "fixture.h"
#include "support/tolerance.h"

namespace voxrt::test {
namespace {

using backend::BatchPlan;
using backend::RopePairing;
using backend::Stream;
using backend::View;
using quant::DType;

class OpConformance : public BackendTest {};

TEST_P(OpConformance, RmsNormEqualsRefWithAndWithoutDelayScales) {
  Random random(21);
  for (int64_t cols : {1, 7, 64, 129, 256, 1280, 3072}) {
    for (int rows : {1, 3, 4, 17}) {
      Matrix x = random.Normals(rows, cols);
      for (int64_t c = 0; c < cols; ++c) x.at(0, c) *= 1e4f;
      if (rows > 1)
        for (int64_t c = 0; c < cols; ++c) x.at(1, c) = 0.0f;
      const Matrix gain = random.Normals(1, cols);
      const Matrix scales = random.Normals(3, cols);
      BatchPlan plan = MakePlan({{0, rows, 0}}, 128);
      for (int r = 0; r < rows; ++r) plan.delay_row.push_back((r * 2 + 1) % 3);
      for (bool scaled : {false, true}) {
        for (DType dtype : {DType::kF32, activation()}) {
          const auto [actual, expected] = Both([&](Rig& rig) {
            const View in = rig.Put(x, DType::kF32, 3);
            const View out = rig.Poisoned(rows, cols, dtype, 5);
            const View g = rig.Put(gain);
            const View s = scaled ? rig.Put(scales) : View{};
            rig.Run(nullptr, &plan, [&](Stream& stream) {
              stream.RmsNorm({.x = in, .gain = g, .scales = s, .epsilon = 1e-5f, .out = out});
            });
            return rig.Get(out);
          });
          Matrix allowed = expected;
          for (float& value : allowed.values) {
            // The sum enters through a square root, which halves its relative error; then reciprocal root and three
            // products.
            const double magnitude = std::fabs(static_cast<double>(value));
            value = static_cast<float>((SumError(cols) / 2 + 8 * 0x1p-24) * magnitude + ResultError(magnitude, dtype));
          }
          ExpectWithin(actual, expected, allowed, std::to_string(rows) + " rows of " + std::to_string(cols));
        }
      }
    }
  }
}

TEST_P(OpConformance, RmsNormRowsAreIndependentOfTheBatch) {
  Random random(22);
  const Matrix x = random.Normals(67, 1280);
  const View gain = dev().Put(random.Normals(1, 1280));
  const auto norm = [&](const Matrix& rows) {
    const View in = dev().Put(rows);
    const View out = dev().Poisoned(rows.rows, rows.cols, activation());
    dev().Run(nullptr, nullptr,
              [&](Stream& s) { s.RmsNorm({.x = in, .gain = gain, .scales = {}, .epsilon = 1e-5f, .out = out}); });
    return dev().Get(out);
  };
  const Matrix whole = norm(x);
  for (int64_t count : {1, 2, 4, 5, 33})
    ExpectSameBits(norm(x.Rows(11, count)), whole.Rows(11, count), std::to_string(count) + " rows");
}

TEST_P(OpConformance, RotationEqualsRefInBothPairingsAtFarPositions) {
  Random random(23);
  for (RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalf}) {
    for (int rows : {1, 3, 9}) {
      const BatchPlan plan = MakePlan({{0, rows, 131052}, {2, 2, 0}, {1, 1, 1000000007}}, 128);
      const Matrix qkv = random.Normals(plan.rows, 8 * 128);
      const auto [actual, expected] = Both([&](Rig& rig) {
        const View view = rig.Put(qkv, activation(), 8);
        for (int slot = 0; slot < 3; ++slot)
          EXPECT_TRUE(rig.state().Reserve(slot, backend::KvId::kDecoder, 2000000000).ok());
        rig.Run(nullptr, &plan, [&](Stream& s) {
          s.RopeStoreKv({.plan = backend::PlanId::kDecoder, .shape = {4, 2, 128}, .pairing = pairing, .qkv = view});
        });
        return rig.Get(view);
      });
      Matrix allowed = expected;
      for (int64_t r = 0; r < plan.rows; ++r) {
        for (int64_t c = 0; c < allowed.cols; ++c) {
          // |x c| + |y s| <= |x| + |y| of the pair.
          const int64_t d = c % 128;
          const int64_t partner = pairing == RopePairing::kAdjacent ? (c ^ 1) : (d < 64 ? c + 64 : c - 64);
          const double magnitude =
              std::fabs(static_cast<double>(qkv.at(r, c))) + std::fabs(static_cast<double>(qkv.at(r, partner)));
          const bool rotated = c < 6 * 128;
          const double error = 4 * 0x1p-24 * magnitude + ResultError(magnitude, activation());
          allowed.at(r, c) = rotated ? static_cast<float>(error) : 0.0f;
        }
      }
      ExpectWithin(actual, expected, allowed, std::to_string(rows) + " rows");
    }
  }
}

TEST_P(OpConformance, GeluAddAndCopyEqualRef) {
  Random random(24);
  const DType a = activation();
  for (int64_t cols : {1, 5, 64, 1283}) {
    Matrix x = random.Normals(3, cols, 2.0f);
    x.at(0, 0) = 0.0f;
    x.at(1, 0) = 40.0f;
    x.at(2, 0) = -40.0f;
    const Matrix y = random.Normals(3, cols);
    const auto [gelu, gelu_ref] = Both([&](Rig& rig) {
      const View in = rig.Put(x, a, 2);
      const View out = rig.Poisoned(3, cols, a, 2);
      rig.Run(nullptr, nullptr, [&](Stream& s) { s.Gelu({.x = in, .out = out}); });
      return rig.Get(out);
    });
    Matrix allowed = gelu_ref;
    for (size_t i = 0; i < allowed.values.size(); ++i) {
      allowed.values[i] = static_cast<float>(GeluTolerance(static_cast<double>(x.values[i]), 0.0) +
                                             UnitRoundoff(a) * std::fabs(static_cast<double>(x.values[i])) *
                                                 (a == DType::kF32 ? 0 : 1) +
                                             ResultError(static_cast<double>(gelu_ref.values[i]), a));
    }
    ExpectWithin(gelu, gelu_ref, allowed, "gelu");

    const auto [sum, sum_ref] = Both([&](Rig& rig) {
      const View in = rig.Put(x, a, 2);
      const View out = rig.Put(y, DType::kF32, 3);
      rig.Run(nullptr, nullptr, [&](Stream& s) { s.Add({.x = in, .out = out}); });
      return rig.Get(out);
    });
    ExpectSameBits(sum, sum_ref, "add");

    for (auto [from, to] :
         {std::pair{DType::kF32, a}, std::pair{a, DType::kF32}, std::pair{DType::kF32, DType::kF32}}) {
      const auto [copy, copy_ref] = Both([&, from = from, to = to](Rig& rig) {
        const View in = rig.Put(x, from, 2);
        const View out = rig.Poisoned(3, cols, to, 3);
        rig.Run(nullptr, nullptr, [&](Stream& s) { s.Copy({.x = in, .out = out}); });
        return rig.Get(out);
      });
      ExpectSameBits(copy, copy_ref, "copy");
    }
  }
}

TEST_P(OpConformance, ArgMaxTakesTheLowestIndexOfTies) {
  Random random(25);
  for (int64_t vocab : {1, 2, 15, 64, 1283, 32771}) {
    BatchPlan plan = MakePlan({{1, 2, 0}, {0, 3, 7}}, 128);
    plan.head_rows = {0, 1, 3, 4};
    Matrix logits = random.Normals(4, vocab);
    for (int64_t v = vocab - 1; v >= 0; v -= 1 + vocab / 7) logits.at(1, v) = 9.0f;  // several equal maxima
    for (int64_t v = 0; v < vocab; ++v) logits.at(2, v) = -1e30f;                    // all equal and very small
    logits.at(3, vocab - 1) = 100.0f;                                                // the last one, in the tail
    if (vocab > 2) {
      logits.at(0, 0) = -0.0f;
      for (int64_t v = 1; v < vocab; ++v) logits.at(0, v) = v == 1 ? 0.0f : -1.0f;  // -0 == +0: lowest index
    }
    std::vector<int32_t> expected;
    for (int64_t r = 0; r < 4; ++r) {
      int64_t best = 0;
      for (int64_t v = 1; v < vocab; ++v) {
        if (logits.at(r, v) > logits.at(r, best)) best = v;
      }
      expected.push_back(static_cast<int32_t>(best));
    }
    const View in = dev().Put(logits, DType::kF32, 5);
    const View out = dev().PoisonedInts(4);
    dev().Run(nullptr, &plan, [&](Stream& s) { s.ArgMax({.logits = in, .out = out}); });
    EXPECT_EQ(dev().GetInts(out), expected) << "vocabulary " << vocab;
  }
}

struct ConvCase {
  int index;  // 0: stride 1, 1: stride 2
  int64_t in_channels;
  int64_t out_channels;
};

// One convolution call with weights of `w`, or of their magnitudes.
Matrix Convolve(Rig& rig, const ConvCase& c, const TestWeight& w, bool magnitudes, const BatchPlan& plan,
                const Matrix& x, DType out_dtype) {
  std::vector<float> values(static_cast<size_t>(c.out_channels * c.in_channels * 3));
  std::vector<float> bias = w.bias();
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = quant::LoadFloat(w.weight().data, DType::kBF16, i);
    values[i] = magnitudes ? std::fabs(value) : value;
  }
  if (magnitudes)
    for (float& value : bias) value = std::fabs(value);
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = quant::F32ToBF16(values[i]);
  auto conv = rig.device().PrepareConv({.name = "conv",
                                        .weight = halves.data(),
                                        .dtype = DType::kBF16,
                                        .out_channels = c.out_channels,
                                        .in_channels = c.in_channels,
                                        .stride = c.index + 1,
                                        .bias = bias});
  EXPECT_TRUE(conv.ok()) << conv.status().message();
  const View in = rig.Put(x, DType::kF32, 4);
  const View out = rig.Poisoned(x.rows / (c.index + 1), c.out_channels, out_dtype, 4);
  rig.Run(&plan, nullptr, [&](Stream& s) {
    s.CausalConv1d({.index = c.index, .weight = conv->get(), .rows_per_plan_row = 2, .x = in, .out = out});
  });
  return rig.Get(out);
}

TEST_P(OpConformance, ConvolutionEqualsRefOverSeveralCallsAndSessions) {
  Random random(26);
  for (const ConvCase& c :
       {ConvCase{0, 128, 64}, {1, 64, 128}, {0, 16, 24}, {1, 16, 24}, {0, 65, 33}, {1, 33, 7}, {1, 1280, 40}}) {
    backend::SessionStateSpec state = SmallState(24, 40);
    state.conv_channels[c.index] = c.in_channels;
    dev().ResetState(state);
    ref().ResetState(state);
    std::string why;
    const auto bound = Rig::Open("ref", state, &why);  // convolves magnitudes: gives the sum that the tolerance needs
    const TestWeight w({.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16}, c.out_channels, c.in_channels * 3,
                       true, random);
    for (const auto& groups :
         {std::vector<GroupSpec>{{0, 1, 0}}, {{1, 3, 0}, {0, 2, 1}}, {{0, 4, 3}, {2, 4, 0}, {1, 1, 3}}}) {
      const BatchPlan plan = MakePlan(groups, 64);
      const Matrix x = random.Normals(plan.rows * 2, c.in_channels);
      Matrix x_magnitude = x;
      for (float& value : x_magnitude.values) value = std::fabs(value);
      const Matrix magnitude = Convolve(*bound, c, w, true, plan, x_magnitude, DType::kF32);
      const Matrix expected = Convolve(ref(), c, w, false, plan, x, activation());
      Matrix allowed = expected;
      for (size_t i = 0; i < allowed.values.size(); ++i) {
        // gelu(m) >= m - 0.17; a device of shorter activations may round its inputs.
        const double sum = static_cast<double>(magnitude.values[i]) + 0.17;
        const double operand = activation() == DType::kF32 ? 0.0 : 2.0 * UnitRoundoff(activation()) * sum;
        allowed.values[i] = static_cast<float>(GeluTolerance(sum, SumError(3 * c.in_channels) * sum + operand) +
                                               ResultError(static_cast<double>(expected.values[i]), activation()));
      }
      ExpectWithin(Convolve(dev(), c, w, false, plan, x, activation()), expected, allowed,
                   "conv " + std::to_string(c.index) + " of " + std::to_string(c.in_channels) + " channels");
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpConformance);
INSTANTIATE_TEST_SUITE_P(Backends, OpConformance, testing::ValuesIn(BackendsBesidesRef()), BackendName);

}  // namespace
}  // namespace voxrt::test
