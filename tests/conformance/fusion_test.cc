// Fusions equal the primitives that define them (compose.h), bit for bit, on every backend and format; the head also
// without stored logits. And one recorded key with changing plans gives what fresh streams give.
#include <algorithm>

#include "backend/compose.h"
#include "fixture.h"
#include "support/sessions.h"

namespace voxrt::test {
namespace {

using backend::AttentionShape;
using backend::BatchPlan;
using backend::KvId;
using backend::LinearRole;
using backend::PlanId;
using backend::Stream;
using backend::View;
using quant::DType;

constexpr int64_t kDim = 256;
constexpr AttentionShape kShape{4, 2, 128};  // decoder of SmallState
constexpr int64_t kQkvCols = 8 * 128;

class Fusions : public FormatTest {
 protected:
  BatchPlan TwoSessions(int64_t at) {
    BatchPlan plan = MakePlan({{1, 3, at}, {0, 2, at}}, 128);
    plan.delay_row = {0, 0, 0, 1, 1};
    plan.head_rows = {1, 2, 4};
    for (int slot : {0, 1}) EXPECT_TRUE(dev().state().Reserve(slot, KvId::kDecoder, at + 3).ok());
    return plan;
  }
};

TEST_P(Fusions, AttentionInputAndOutputEqualTheirPrimitives) {
  Random random(51);
  const TestWeight q(format(), 512, kDim, true, random);
  const TestWeight k(format(), 256, kDim, false, random);
  const TestWeight v(format(), 256, kDim, true, random);
  const TestWeight o(format(), kDim, 512, true, random);
  const auto qkv_weight = Prepare(dev(), {&q, &k, &v}, LinearRole::kQkv);
  const auto o_weight = Prepare(dev(), {&o});
  ASSERT_TRUE(qkv_weight != nullptr && o_weight != nullptr);
  const View gain = dev().Put(random.Normals(1, kDim));
  Matrix results[2][2];
  for (int64_t call = 0; call < 2; ++call) {
    const Matrix x = random.Normals(5, kDim);
    for (bool fused : {false, true}) {
      if (call == 0) dev().ResetState(SmallState(24, 40));
      const BatchPlan plan = TwoSessions(0);
      const View residual = dev().Put(x);
      const View normed = dev().Poisoned(5, kDim, activation());
      const View qkv = dev().Poisoned(5, kQkvCols, activation());
      const View attended = dev().Poisoned(5, 512, activation());
      const backend::AttentionInputArgs in{.plan = PlanId::kDecoder,
                                           .layer = 0,
                                           .shape = kShape,
                                           .x = residual,
                                           .gain = gain,
                                           .epsilon = 1e-5f,
                                           .qkv_weight = qkv_weight.get(),
                                           .normed = normed,
                                           .qkv = qkv};
      const backend::AttentionOutputArgs out{.plan = PlanId::kDecoder,
                                             .layer = 0,
                                             .shape = kShape,
                                             .qkv = qkv,
                                             .attended = attended,
                                             .output_weight = o_weight.get(),
                                             .x = residual};
      dev().Run(nullptr, &plan, [&](Stream& s) {
        if (fused) {
          s.AttentionInput(in);
          s.AttentionOutput(out);
        } else {
          ComposeAttentionInput(s, in);
          ComposeAttentionOutput(s, out);
        }
      });
      results[call][fused ? 1 : 0] = dev().Get(residual);
    }
    ExpectSameBits(results[call][1], results[call][0], "call " + std::to_string(call));
  }
}

TEST_P(Fusions, FeedForwardInputEqualsItsPrimitives) {
  Random random(52);
  const TestWeight gate(format(), 384, kDim, false, random);
  const TestWeight up(format(), 384, kDim, false, random);
  const auto weight = Prepare(dev(), {&gate, &up}, LinearRole::kGateUp);
  ASSERT_NE(weight, nullptr);
  const View gain = dev().Put(random.Normals(1, kDim));
  const View scales = dev().Put(random.Normals(2, kDim));
  const BatchPlan plan = TwoSessions(0);
  const Matrix x = random.Normals(5, kDim);
  for (bool scaled : {false, true}) {
    Matrix results[2];
    for (bool fused : {false, true}) {
      const backend::FeedForwardInputArgs args{.x = dev().Put(x),
                                               .gain = gain,
                                               .scales = scaled ? scales : View{},
                                               .epsilon = 1e-5f,
                                               .gate_up = weight.get(),
                                               .normed = dev().Poisoned(5, kDim, activation()),
                                               .hidden = dev().Poisoned(5, 384, activation())};
      dev().Run(nullptr, &plan,
                [&](Stream& s) { fused ? s.FeedForwardInput(args) : ComposeFeedForwardInput(s, args); });
      results[fused ? 1 : 0] = dev().Get(args.hidden);
    }
    ExpectSameBits(results[1], results[0], scaled ? "with delay scales" : "plain");
  }
}

TEST_P(Fusions, HeadEqualsItsPrimitivesWithAndWithoutStoredLogits) {
  Random random(53);
  const int64_t vocab = format().kind == quant::FormatKind::kInt4Tile ? 1288 : 1283;
  const TestWeight w(format(), vocab, kDim, false, random);
  const auto weight = Prepare(dev(), {&w}, LinearRole::kHead);
  if (weight == nullptr) GTEST_SKIP() << "the device refuses a vocabulary of " << vocab;
  const Matrix gain_values = random.Normals(1, kDim);
  const View gain = dev().Put(gain_values);
  Matrix x = random.Normals(5, kDim);
  for (int64_t c = 0; c < kDim; ++c)
    x.at(2, c) = 0.0f;  // all its logits are equal: the lowest index wins, whoever made it
  const BatchPlan plan = TwoSessions(0);
  Matrix gathered(3, kDim);
  for (int64_t i = 0; i < 3; ++i) {
    std::copy_n(x.values.begin() + plan.head_rows[static_cast<size_t>(i)] * kDim, kDim,
                gathered.values.begin() + i * kDim);
  }
  const View picked = dev().Put(gathered);
  const View normed = dev().Poisoned(3, kDim, activation());
  const View logits = dev().Poisoned(3, vocab);
  const View tokens = dev().PoisonedInts(3);
  dev().Run(nullptr, &plan, [&](Stream& s) {
    s.RmsNorm({.x = picked, .gain = gain, .scales = {}, .epsilon = 1e-5f, .out = normed});
    s.Linear({.x = normed, .weight = weight.get(), .out = logits});
    s.ArgMax({.logits = logits, .out = tokens});
  });
  const Matrix expected_logits = dev().Get(logits);
  const std::vector<int32_t> expected = dev().GetInts(tokens);
  EXPECT_EQ(expected[1], 0);
  for (bool stored : {false, true}) {
    const View residual = dev().Put(x);
    const View scratch = dev().Poisoned(3, kDim, activation());
    const View out = stored ? dev().Poisoned(3, vocab, DType::kF32, 3) : View{};
    const View token = dev().PoisonedInts(3);
    dev().Run(nullptr, &plan, [&](Stream& s) {
      s.Head({.x = residual,
              .gain = gain,
              .epsilon = 1e-5f,
              .weight = weight.get(),
              .normed = scratch,
              .logits = out,
              .token = token});
    });
    EXPECT_EQ(dev().GetInts(token), expected) << (stored ? "with logits" : "without logits");
    if (stored) ExpectSameBits(dev().Get(out), expected_logits, "logits");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Fusions,
                         testing::Combine(testing::ValuesIn(AllBackends()), testing::ValuesIn(AllFormats())),
                         BackendAndFormatName);

class Threads : public FormatTest {};

TEST_P(Threads, TheirNumberDoesNotChangeABit) {
  Random random(57);
  const TestWeight w(format(), 1064, kDim, true, random);
  Matrix x = random.Normals(5, kDim);
  for (int64_t c = 0; c < kDim; ++c) x.at(2, c) = 0.0f;
  const Matrix gain = random.Normals(1, kDim);
  const Matrix rows = random.Normals(5, kQkvCols);
  BatchPlan plan = MakePlan({{1, 3, 0}, {0, 2, 0}}, 128);
  plan.head_rows = {0, 2, 4};
  Matrix results[3][3];
  std::vector<int32_t> tokens[3];
  const int counts[] = {1, 2, 5};
  for (size_t i = 0; i < 3; ++i) {
    std::string why;
    const auto rig = Rig::Open(std::get<0>(GetParam()), SmallState(24, 40), &why, {.threads = counts[i]});
    ASSERT_NE(rig, nullptr) << why;
    for (int slot : {0, 1}) ASSERT_TRUE(rig->state().Reserve(slot, KvId::kDecoder, 8).ok());
    const auto plain = Prepare(*rig, {&w});
    const auto head = Prepare(*rig, {&w}, LinearRole::kHead);
    const View in = rig->Put(x);
    const View cast = rig->Poisoned(5, kDim, activation());
    const View out = rig->Poisoned(5, 1064, activation());
    const View logits = rig->Poisoned(3, 1064);
    const View token = rig->PoisonedInts(3);
    const View qkv = rig->Put(rows, activation());
    const View attended = rig->Poisoned(5, 512, activation());
    const View g = rig->Put(gain);
    const View normed = rig->Poisoned(3, kDim, activation());
    rig->Run(nullptr, &plan, [&](Stream& s) {
      s.Copy({.x = in, .out = cast});
      s.Linear({.x = cast, .weight = plain.get(), .out = out});
      s.Head({.x = in,
              .gain = g,
              .epsilon = 1e-5f,
              .weight = head.get(),
              .normed = normed,
              .logits = logits,
              .token = token});
      s.RopeStoreKv({.plan = PlanId::kDecoder, .layer = 0, .shape = kShape, .qkv = qkv});
      s.WindowAttention({.plan = PlanId::kDecoder, .layer = 0, .shape = kShape, .qkv = qkv, .out = attended});
    });
    results[i][0] = rig->Get(out);
    results[i][1] = rig->Get(logits);
    results[i][2] = rig->Get(attended);
    tokens[i] = rig->GetInts(token);
    for (size_t r = 0; r < 3; ++r) ExpectSameBits(results[i][r], results[0][r], std::to_string(counts[i]) + " threads");
    EXPECT_EQ(tokens[i], tokens[0]) << counts[i] << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Threads,
                         testing::Combine(testing::ValuesIn(AllBackends()), testing::ValuesIn(AllFormats())),
                         BackendAndFormatName);

class Replay : public BackendTest {};

TEST_P(Replay, OneKeyWithChangingPlansEqualsFreshStreams) {
  Random random(54);
  const TestWeight w({.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16}, kDim, 512, false, random);
  auto weight = dev().device().Prepare({.name = "o", .role = LinearRole::kPlain, .blocks = {w.block()}});
  ASSERT_TRUE(weight.ok()) << weight.status().message();
  const Matrix rows = random.Normals(100, kQkvCols);
  Matrix results[2];
  for (bool replayed : {false, true}) {
    dev().ResetState(SmallState(24, 40));
    for (int slot : {0, 1}) ASSERT_TRUE(dev().state().Reserve(slot, KvId::kDecoder, 1000).ok());
    const View in = dev().Poisoned(2, kQkvCols);
    const View qkv = dev().Poisoned(2, kQkvCols, activation());
    const View attended = dev().Poisoned(2, 512, activation());
    const View out = dev().Poisoned(2, kDim);
    auto stream = dev().NewStream();
    int64_t fed[2] = {0, 0};  // rows of each session
    for (int64_t at = 0; at < 50; ++at) {
      if (!replayed) stream = dev().NewStream();
      // The sessions change places in the batch and leave it: positions, slots and row counts are the plan's, not the
      // key's.
      const int first = static_cast<int>(at % 2);
      std::vector<GroupSpec> groups = {{first, 1, fed[first]++}};
      if (at % 7 != 3) groups.push_back({1 - first, 1, fed[1 - first]++});
      const BatchPlan plan = MakePlan(groups, 128);
      stream->SetPlan(PlanId::kDecoder, plan);
      stream->Upload(in, &rows.values[static_cast<size_t>(2 * at * kQkvCols)]);
      stream->Run(
          {.kind = backend::RunKind::kDecode, .encoder_rows = 0, .decoder_rows = 2, .head_rows = 0}, [&](Stream& s) {
            s.Copy({.x = in, .out = qkv});
            s.RopeStoreKv({.plan = PlanId::kDecoder, .layer = 0, .shape = kShape, .qkv = qkv});
            s.WindowAttention({.plan = PlanId::kDecoder, .layer = 0, .shape = kShape, .qkv = qkv, .out = attended});
            s.Linear({.x = attended, .weight = weight->get(), .out = out});
          });
      Matrix result(plan.rows, kDim);
      ASSERT_TRUE(stream->Readback(out.Rows(0, plan.rows), result.values.data()).ok());
      results[replayed ? 1 : 0].cols = kDim;
      results[replayed ? 1 : 0].rows += result.rows;
      auto& all = results[replayed ? 1 : 0].values;
      all.insert(all.end(), result.values.begin(), result.values.end());
    }
  }
  ExpectSameBits(results[1], results[0], "replayed");
}

TEST_P(Replay, TapsDeliverWhatIsAskedForAndNothingElse) {
  class Sink : public backend::TapSink {
   public:
    bool Wants(std::string_view name) const override { return name == "decoder"; }
    void Take(std::string_view name, int64_t rows, int64_t cols, const float* values) override {
      names.emplace_back(name);
      taken = Matrix(rows, cols);
      std::copy_n(values, rows * cols, taken.values.begin());
    }
    std::vector<std::string> names;
    Matrix taken;
  };
  Random random(55);
  const Matrix x = random.Normals(3, 65);
  const View view = dev().Put(x, DType::kF32, 7);
  const BatchPlan plan = MakePlan({{0, 3, 0}}, 128);
  const auto stream = dev().NewStream();
  Sink sink;
  for (bool on : {true, false}) {
    stream->SetTapSink(on ? &sink : nullptr);
    stream->SetPlan(PlanId::kDecoder, plan);
    stream->Run({.kind = backend::RunKind::kDecode, .encoder_rows = 0, .decoder_rows = 3, .head_rows = 0},
                [&](Stream& s) {
                  s.Tap("encoder", view);
                  s.Tap("decoder", view);
                });
    ASSERT_TRUE(stream->Sync().ok());
  }
  EXPECT_EQ(sink.names, std::vector<std::string>{"decoder"});
  ExpectSameBits(sink.taken, x, "tap");
}

TEST_P(Replay, UploadReadbackAndWriteRespectStrides) {
  Random random(56);
  const Matrix x = random.Normals(5, 33);
  const View view = dev().Put(Matrix(5, 33), DType::kF32, 6);
  const auto stream = dev().NewStream();
  stream->Upload(view.Rows(1, 3), x.values.data());
  Matrix back(3, 33);
  ASSERT_TRUE(stream->Readback(view.Rows(1, 3), back.values.data()).ok());
  ExpectSameBits(back, x.Rows(0, 3), "uploaded rows");
  ExpectSameBits(dev().Get(view.Rows(4, 1)), Matrix(1, 33), "row after");
  ASSERT_TRUE(dev().device().Write(view.Cols(10, 5).Rows(2, 1), x.values.data()).ok());
  ExpectSameBits(
      dev().Get(view.Cols(10, 5).Rows(2, 1)),
      [&] {
        Matrix five(1, 5);
        std::copy_n(x.values.begin(), 5, five.values.begin());
        return five;
      }(),
      "written columns");
  auto fresh = dev().device().Allocate(3, 17, DType::kF32);
  ASSERT_TRUE(fresh.ok());
  ExpectSameBits(dev().Get((*fresh)->view()), Matrix(3, 17), "new buffers are zero");
}

INSTANTIATE_TEST_SUITE_P(Backends, Replay, testing::ValuesIn(AllBackends()), BackendName);

// Named so that the GPU variant of this binary always has a test that says why nothing ran.
TEST(Gpu, cuda_backend_is_compiled_in_and_opens) {
  const std::vector<std::string> names = AllBackends();
  if (std::find(names.begin(), names.end(), "cuda") == names.end()) GTEST_SKIP() << "built without VOXRT_WITH_CUDA";
  std::string why;
  if (Rig::Open("cuda", SmallState(24, 40), &why) == nullptr) GTEST_SKIP() << "no CUDA device: " << why;
}

}  // namespace
}  // namespace voxrt::test
