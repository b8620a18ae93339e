// The CPU backend on every compiled instruction set this machine runs: equal to ref within rounding, and the same bits
// for a row whatever else is in the call.
#include "backend/cpu/cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/compose.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/targets_for_test.h"
#include "backend/stream.h"
#include "support/rig.h"
#include "support/tolerance.h"
#include "support/weights.h"

namespace voxrt::backend {
namespace {

using quant::DType;
using quant::Format;
using quant::FormatKind;
using test::Matrix;
using test::Random;
using test::Rig;
using test::TestWeight;

class CpuBackend : public cpu::TargetTest {
 protected:
  static std::unique_ptr<Rig> Open(const std::string& backend, const SessionStateSpec& state) {
    std::string why;
    auto rig = Rig::Open(backend, state, &why);
    EXPECT_NE(rig, nullptr) << why;
    return rig;
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, CpuBackend, testing::ValuesIn(cpu::RunnableTargets()), cpu::NameOfTarget);

Format Float(DType dtype) { return {.kind = FormatKind::kFloat, .dtype = dtype}; }

std::unique_ptr<PreparedLinear> Prepare(Rig& rig, const std::vector<const TestWeight*>& blocks,
                                        LinearRole role = LinearRole::kPlain) {
  LinearSpec spec{.name = "w", .role = role, .blocks = {}};
  for (const TestWeight* block : blocks) spec.blocks.push_back(block->block());
  auto made = rig.device().Prepare(spec);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

// Largest sum of |x| |w| over the outputs: what rounding errors of a dot product are proportional to.
float Magnitude(const Matrix& x, const Matrix& w) {
  float largest = 0.0f;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t n = 0; n < w.rows; ++n) {
      float sum = 0.0f;
      for (int64_t k = 0; k < x.cols; ++k) sum += std::fabs(x.at(r, k) * w.at(n, k));
      largest = std::max(largest, sum);
    }
  }
  return largest;
}

void ExpectNear(const Matrix& got, const Matrix& expected, float tolerance) {
  ASSERT_EQ(got.values.size(), expected.values.size());
  for (size_t i = 0; i < got.values.size(); ++i) ASSERT_NEAR(got.values[i], expected.values[i], tolerance) << i;
}

bool SameBits(const Matrix& a, const Matrix& b) {
  return a.values.size() == b.values.size() && std::memcmp(a.values.data(), b.values.data(), a.values.size() * 4) == 0;
}

TEST_P(CpuBackend, LinearEqualsRefForEveryStoredTypeShapeAndEpilogue) {
  auto cpu = Open("cpu", test::SmallState(4, 4));
  auto ref = Open("ref", test::SmallState(4, 4));
  Random random(1);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (auto [n, k] : {std::pair{1, 1}, {5, 7}, {16, 64}, {37, 96}, {33, 130}, {64, 256}}) {
      const TestWeight w(Float(dtype), n, k, true, random);
      const auto on_cpu = Prepare(*cpu, {&w});
      const auto on_ref = Prepare(*ref, {&w});
      for (int64_t rows : {1, 2, 3, 4, 6, 9, 17}) {
        const Matrix x = random.Normals(rows, k);
        const Matrix start = random.Normals(rows, n);
        const float tolerance = 1e-6f * (Magnitude(x, w.Values()) + 4.0f);
        for (Epilogue epilogue : {Epilogue::kNone, Epilogue::kGelu, Epilogue::kAddTo}) {
          Matrix results[2];
          for (int i = 0; i < 2; ++i) {
            Rig& rig = i == 0 ? *cpu : *ref;
            const View in = rig.Put(x, DType::kF32, 3);
            const View out = rig.Put(start, DType::kF32, 5);
            rig.Run(nullptr, nullptr, [&](Stream& s) {
              s.Linear({.x = in, .weight = (i == 0 ? on_cpu : on_ref).get(), .out = out, .epilogue = epilogue});
            });
            results[i] = rig.Get(out);
          }
          SCOPED_TRACE(testing::Message() << n << "x" << k << " rows " << rows);
          ExpectNear(results[0], results[1], tolerance);
        }
      }
    }
  }
}

TEST_P(CpuBackend, QuantizedLinearEqualsRefAndARowHasTheSameBitsInEveryBatch) {
  auto cpu = Open("cpu", test::SmallState(4, 4));
  auto ref = Open("ref", test::SmallState(4, 4));
  Random random(7);
  for (const Format& format : test::AllFormats()) {
    if (format.kind == FormatKind::kFloat) continue;
    // The last two: a single activation row takes two streams of weights for each worker, of several tiles each.
    for (auto [n, k] : {std::pair{7, 96}, {24, 256}, {16, 512}, {5, 37}, {107, 256}, {75, 1280}}) {
      if (!test::Fits(format, n, k)) continue;
      SCOPED_TRACE(testing::Message() << FormatName(format) << " " << n << "x" << k);
      const TestWeight w(format, n, k, true, random);
      const auto on_cpu = Prepare(*cpu, {&w});
      const auto on_ref = Prepare(*ref, {&w});
      const Matrix x = random.Normals(20, k);
      const auto multiply = [&](Rig& rig, const PreparedLinear& weight, const Matrix& in) {
        const View v = rig.Put(in, DType::kF32, 3);
        const View out = rig.Poisoned(in.rows, weight.rows(), DType::kF32, 1);
        rig.Run(nullptr, nullptr, [&](Stream& s) { s.Linear({.x = v, .weight = &weight, .out = out}); });
        return rig.Get(out);
      };
      const Matrix got = multiply(*cpu, *on_cpu, x);
      const Matrix expected = multiply(*ref, *on_ref, x);
      const Matrix tolerance = test::LinearTolerance(x, w);
      for (size_t i = 0; i < got.values.size(); ++i) {
        ASSERT_NEAR(got.values[i], expected.values[i], tolerance.values[i]) << i;
      }
      for (int64_t count : {1, 2, 3, 4, 8}) {
        EXPECT_TRUE(SameBits(multiply(*cpu, *on_cpu, x.Rows(11, count)), got.Rows(11, count))) << count;
      }
    }
  }
}

TEST_P(CpuBackend, ALinearRowHasTheSameBitsInEveryBatch) {
  auto rig = Open("cpu", test::SmallState(4, 4));
  Random random(2);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t k : {256, 100}) {
      const TestWeight gate(Float(dtype), 43, k, false, random);
      const TestWeight up(Float(dtype), 43, k, false, random);
      const auto plain = Prepare(*rig, {&gate, &up}, LinearRole::kGateUp);
      const Matrix x = random.Normals(40, k);
      const auto both = [&](const Matrix& in) {
        const View v = rig->Put(in);
        const View linear = rig->Poisoned(in.rows, 86);
        const View pair = rig->Poisoned(in.rows, 43);
        rig->Run(nullptr, nullptr, [&](Stream& s) {
          s.Linear({.x = v, .weight = plain.get(), .out = linear});
          s.LinearPair({.x = v, .weight = plain.get(), .out = pair});
        });
        return std::pair{rig->Get(linear), rig->Get(pair)};
      };
      const auto [linear, pair] = both(x);
      for (int64_t count : {1, 2, 3, 5, 8, 11}) {
        for (int64_t begin = 0; begin + count <= 40; begin += count + 3) {
          const auto [part, pair_part] = both(x.Rows(begin, count));
          EXPECT_TRUE(SameBits(part, linear.Rows(begin, count))) << k << " " << begin << " " << count;
          EXPECT_TRUE(SameBits(pair_part, pair.Rows(begin, count))) << k << " " << begin << " " << count;
        }
      }
    }
  }
}

// Runs the rows through attention in calls of the given sizes.
Matrix Attend(Rig& rig, const Matrix& qkv, const std::vector<int>& calls, const AttentionShape& shape, PlanId id) {
  rig.state().Clear(0);
  Matrix all(qkv.rows, int64_t{shape.heads} * shape.head_dim);
  int64_t at = 0;
  for (size_t i = 0; at < qkv.rows; ++i) {
    const auto rows = static_cast<int>(std::min<int64_t>(calls[i % calls.size()], qkv.rows - at));
    const KvId kv = id == PlanId::kEncoder ? KvId::kEncoder : KvId::kDecoder;
    EXPECT_TRUE(rig.state().Reserve(0, kv, at + rows).ok());
    const BatchPlan plan = test::MakePlan({{.slot = 0, .rows = rows, .first_index = at}}, shape.head_dim);
    const View in = rig.Put(qkv.Rows(at, rows));
    const View out = rig.Poisoned(rows, all.cols);
    rig.Run(id == PlanId::kEncoder ? &plan : nullptr, id == PlanId::kDecoder ? &plan : nullptr, [&](Stream& s) {
      s.RopeStoreKv({.plan = id, .layer = 0, .shape = shape, .qkv = in});
      s.WindowAttention({.plan = id, .layer = 0, .shape = shape, .qkv = in, .out = out});
    });
    const Matrix got = rig.Get(out);
    std::copy(got.values.begin(), got.values.end(), all.values.begin() + at * all.cols);
    at += rows;
  }
  return all;
}

TEST_P(CpuBackend, AttentionEqualsRefAndHasTheSameBitsInEveryChunking) {
  Random random(3);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (auto [window, heads] : {std::pair{5, 2}, {70, 2}, {130, 6}}) {
      const bool decoder = heads > 2;
      const PlanId id = decoder ? PlanId::kDecoder : PlanId::kEncoder;
      const AttentionShape shape{heads, 2, decoder ? 128 : 64};
      SessionStateSpec state = test::SmallState(window, window, dtype);
      auto cpu = Open("cpu", state);
      auto ref = Open("ref", state);
      const Matrix qkv = random.Normals(220, int64_t{shape.heads + 4} * shape.head_dim);
      const Matrix whole = Attend(*cpu, qkv, {220}, shape, id);
      // An element on the border of two codes may round either way, since rotation is not bit for bit that of ref.
      const float tolerance = dtype == DType::kF32 ? 1e-5f : dtype == DType::kBF16 ? 1e-3f : 3e-3f;
      ExpectNear(whole, Attend(*ref, qkv, {220}, shape, id), tolerance);
      EXPECT_TRUE(SameBits(whole, Attend(*cpu, qkv, {1}, shape, id))) << window;
      EXPECT_TRUE(SameBits(whole, Attend(*cpu, qkv, {4}, shape, id))) << window;
      EXPECT_TRUE(SameBits(whole, Attend(*cpu, qkv, {7, 1, 64, 3}, shape, id))) << window;
    }
  }
}

TEST_P(CpuBackend, FusionsGiveTheBitsOfTheirPrimitives) {
  SessionStateSpec state = test::SmallState(20, 20);
  auto rig = Open("cpu", state);
  Random random(4);
  constexpr int64_t kDim = 160;
  const AttentionShape shape{4, 2, 128};
  const TestWeight q(Float(DType::kBF16), 512, kDim, true, random);
  const TestWeight k(Float(DType::kBF16), 256, kDim, false, random);
  const TestWeight v(Float(DType::kF32), 256, kDim, true, random);
  const auto qkv_weight = Prepare(*rig, {&q, &k, &v}, LinearRole::kQkv);
  const View gain = rig->Put(random.Normals(1, kDim));
  for (int rows : {1, 4, 33}) {
    const BatchPlan plan = test::MakePlan({{.slot = 1, .rows = rows, .first_index = 3}}, shape.head_dim);
    const View x = rig->Put(random.Normals(rows, kDim));
    const View normed = rig->Poisoned(rows, kDim);
    const View fused = rig->Poisoned(rows, 1024);
    const View composed = rig->Poisoned(rows, 1024);
    for (RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalf}) {
      AttentionInputArgs args{.plan = PlanId::kDecoder,
                              .shape = shape,
                              .pairing = pairing,
                              .x = x,
                              .gain = gain,
                              .qkv_weight = qkv_weight.get(),
                              .normed = normed,
                              .qkv = fused};
      rig->Run(nullptr, &plan, [&](Stream& s) { s.AttentionInput(args); });
      args.qkv = composed;
      rig->Run(nullptr, &plan, [&](Stream& s) { ComposeAttentionInput(s, args); });
      EXPECT_TRUE(SameBits(rig->Get(fused), rig->Get(composed))) << rows;
    }
  }
}

TEST_P(CpuBackend, HeadIsTheArgMaxOfItsLogitsAndTiesGoToTheLowestId) {
  auto rig = Open("cpu", test::SmallState(20, 20));
  Random random(5);
  constexpr int64_t kDim = 128;
  TestWeight w(Float(DType::kBF16), 1003, kDim, false, random);
  auto* bits = static_cast<uint16_t*>(const_cast<void*>(w.weight().data));
  for (int64_t copy : {17, 500, 501, 1002}) std::copy_n(bits + 3 * kDim, kDim, bits + copy * kDim);
  const auto head = Prepare(*rig, {&w}, LinearRole::kHead);
  const View gain = rig->Put(random.Normals(1, kDim));
  Matrix x = random.Normals(20, kDim);
  for (int64_t i = 0; i < kDim; ++i) x.at(11, i) = 30.0f * w.Values().at(3, i) / rig->Get(gain).at(0, i);
  const View in = rig->Put(x);
  for (int wanted : {1, 5, 20}) {
    BatchPlan plan = test::MakePlan({{.slot = 0, .rows = 20, .first_index = 0}}, 128);
    for (int i = 0; i < wanted; ++i) plan.head_rows.push_back(wanted == 1 ? 11 : wanted == 5 ? 8 + i : i);
    const View normed = rig->Poisoned(wanted, kDim);
    const View logits = rig->Poisoned(wanted, 1003);
    const View tokens = rig->PoisonedInts(wanted);
    const View again = rig->PoisonedInts(wanted);
    const View searched = rig->PoisonedInts(wanted);
    rig->Run(nullptr, &plan, [&](Stream& s) {
      s.Head({.x = in, .gain = gain, .weight = head.get(), .normed = normed, .logits = logits, .token = tokens});
      s.Head({.x = in, .gain = gain, .weight = head.get(), .normed = normed, .logits = {}, .token = again});
      s.ArgMax({.logits = logits, .out = searched});
    });
    EXPECT_EQ(rig->GetInts(tokens), rig->GetInts(searched));
    EXPECT_EQ(rig->GetInts(tokens), rig->GetInts(again));
    const int tied = wanted == 1 ? 0 : wanted == 5 ? 3 : 11;
    EXPECT_EQ(rig->GetInts(tokens)[static_cast<size_t>(tied)], 3);
  }
}

TEST_P(CpuBackend, ConvolutionsCarryTheirTailsAcrossCallsWithTheSameBits) {
  auto cpu = Open("cpu", test::SmallState(20, 20));
  auto ref = Open("ref", test::SmallState(20, 20));
  Random random(6);
  for (int index : {0, 1}) {
    const int64_t in = test::SmallState(20, 20).conv_channels[index];
    const TestWeight w(Float(DType::kBF16), 24, in * 3, true, random);
    const ConvSpec spec{.name = "conv",
                        .weight = w.weight().data,
                        .dtype = DType::kBF16,
                        .out_channels = 24,
                        .in_channels = in,
                        .stride = index + 1,
                        .bias = w.bias()};
    const Matrix x = random.Normals(24, in);
    const auto run = [&](Rig& rig, const std::vector<int>& calls) {
      rig.state().Clear(2);
      auto conv = rig.device().PrepareConv(spec);
      EXPECT_TRUE(conv.ok());
      Matrix all(24 / (index + 1), 24);
      int64_t at = 0;
      for (int rows : calls) {
        const BatchPlan plan = test::MakePlan({{.slot = 2, .rows = rows, .first_index = at}}, 64);
        const View input = rig.Put(x.Rows(2 * at, 2 * rows));
        const View out = rig.Poisoned(2 * rows / (index + 1), 24);
        rig.Run(&plan, nullptr, [&](Stream& s) {
          s.CausalConv1d({.index = index, .weight = conv->get(), .rows_per_plan_row = 2, .x = input, .out = out});
        });
        const Matrix got = rig.Get(out);
        std::copy(got.values.begin(), got.values.end(), all.values.begin() + 2 * at / (index + 1) * 24);
        at += rows;
      }
      return all;
    };
    const Matrix whole = run(*cpu, {12});
    ExpectNear(whole, run(*ref, {12}), 1e-4f);
    EXPECT_TRUE(SameBits(whole, run(*cpu, {1, 4, 1, 6})));
  }
}

TEST_P(CpuBackend, ExpAndGeluAreExactEnough) {
  std::vector<float> x;
  for (int i = -100000; i <= 100000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  std::vector<float> y(x.size());
  cpu::ExpRow(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] > 88.0f) continue;
    const double exact = x[i] < -87.3f ? 0.0 : std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, 2e-7 * exact) << x[i];
  }
  cpu::GeluRow(x.data(), static_cast<int64_t>(x.size()), y.data());
  const double allowed = GetParam() == HWY_SSE4 ? 2.5e-7 : 2e-7;  // without fused multiply-add every step rounds twice
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    ASSERT_NEAR(y[i], 0.5 * v * (1.0 + std::erf(v / std::sqrt(2.0))), allowed * std::max(1.0, std::fabs(v))) << x[i];
  }
}

}  // namespace
}  // namespace voxrt::backend
