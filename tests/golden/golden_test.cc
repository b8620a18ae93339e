// The tiny golden checkpoint on every compiled backend: mel, conv, encoder, adapter, logits and tokens against
// transformers in fp32, one tick at a time and in long calls. Tolerances: docs/model.md 10.
#include <gtest/gtest.h>

#include <cmath>

#include "audio/mel.h"
#include "backend/registry.h"
#include "engine/model_runner.h"
#include "support/golden_file.h"
#include "support/root.h"
#include "text/tekken.h"

namespace voxrt::engine {
namespace {

using voxrt::testing::GoldenTensor;
using voxrt::testing::ReadGolden;

const std::string kGoldenDir = test::Root() + "/tests/golden";
constexpr double kNearTie = 1e-3;

struct Case {
  std::string name;
  int delay;
};

// Collects whole tapped tensors, call after call.
class Collector : public backend::TapSink {
 public:
  bool Wants(std::string_view name) const override {
    return name == "mel" || name == "conv" || name == "encoder" || name == "adapter" || name == "logits";
  }
  void Take(std::string_view name, int64_t rows, int64_t cols, const float* values) override {
    auto& tensor = taken[std::string(name)];
    tensor.insert(tensor.end(), values, values + rows * cols);
  }
  std::map<std::string, std::vector<float>> taken;
};

class GoldenTest : public ::testing::TestWithParam<std::tuple<std::string, Case, int64_t>> {
 protected:
  void SetUp() override {
    const std::string backend = std::get<0>(GetParam());
    auto device = backend::OpenDevice(backend, {.threads = 2});
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    device_ = *std::move(device);
    auto checkpoint = weights::Checkpoint::Open(kGoldenDir + "/tiny", {});
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint_ = *checkpoint;
    tekken_ = *text::Tekken::Parse(checkpoint_->tekken_json());
    auto model = model::Model::Create(checkpoint_, *device_);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    auto runner = ModelRunner::Create(checkpoint_, model_, *device_, {.max_sessions = 1, .max_encode_ticks = 200});
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    runner_ = *std::move(runner);
    runner_->stream().SetTapSink(&taps_);
  }

  std::vector<float> MelRows(const std::vector<double>& pcm, int delay) {
    std::vector<float> padded(static_cast<size_t>(tekken_->left_pad_tokens()) * 1280, 0.0f);
    for (const double sample : pcm) padded.push_back(static_cast<float>(sample) / 32768.0f);
    padded.resize(padded.size() + (1280 - pcm.size() % 1280) % 1280 + 1280 * static_cast<size_t>(delay + 11), 0.0f);
    audio::MelStream mel{audio::MelOptions{}};
    std::vector<float> rows;
    mel.Push(padded, &rows);
    mel.Finish(&rows);
    return rows;
  }

  // Greedy tokens of a whole signal; `ticks_per_call` = 1: live ticks, else long encoder calls and single decoder rows.
  std::vector<int32_t> Decode(const std::vector<float>& rows, int delay, int64_t ticks_per_call) {
    EXPECT_TRUE(model_->delays().Ensure(delay).ok());
    const int64_t positions = static_cast<int64_t>(rows.size()) / (8 * 128);
    const int64_t prompt = 1 + tekken_->left_pad_tokens() + delay;
    std::vector<int32_t> tokens;
    for (int64_t first = 0; first < positions; first += ticks_per_call) {
      const int64_t ticks = std::min(ticks_per_call, positions - first);
      EXPECT_TRUE(runner_->Reserve(0, first + ticks, first + ticks).ok());
      const EncodeItem encode{.first_tick = first, .ticks = ticks, .mel = rows.data() + first * 8 * 128};
      if (ticks_per_call > 1) {
        EXPECT_TRUE(runner_->Encode({&encode, 1}).ok());
      }
      for (int64_t p = first; p < first + ticks; ++p) {
        const int32_t input = p == 0 ? tekken_->bos() : p < prompt ? tekken_->pad() : tokens.back();
        const DecodeItem decode{.first_index = p,
                                .delay_tokens = delay,
                                .tokens = {&input, 1},
                                .audio_row = p - first,
                                .head_begin = p >= prompt - 1 ? 0 : 1};
        DecodeOutput output;
        const Status status = ticks_per_call > 1 ? runner_->Decode({&decode, 1}, true, &output)
                                                 : runner_->LiveTick({&encode, 1}, {&decode, 1}, true, &output);
        EXPECT_TRUE(status.ok()) << status.message();
        tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
      }
    }
    return tokens;
  }

  // Largest |difference| of the golden tensor's last rows and ours; `transposed`: stored [cols, rows].
  void Compare(const std::string& tap, const GoldenTensor& want, bool transposed, double tolerance) {
    const std::vector<float>& got = taps_.taken[tap];
    const auto rows = static_cast<size_t>(want.shape[transposed ? 1 : 0]);
    const auto cols = static_cast<size_t>(want.shape[transposed ? 0 : 1]);
    ASSERT_GE(got.size(), rows * cols) << tap;
    const size_t skip = got.size() - rows * cols;
    double worst = 0.0;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t col = 0; col < cols; ++col) {
        const double expected = want.values[transposed ? col * rows + row : row * cols + col];
        worst = std::max(worst, std::abs(expected - static_cast<double>(got[skip + row * cols + col])));
      }
    }
    RecordProperty(tap, std::to_string(worst));
    EXPECT_LE(worst, tolerance) << tap;
  }

  Collector taps_;
  std::unique_ptr<backend::Device> device_;
  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  std::optional<text::Tekken> tekken_;
  std::shared_ptr<model::Model> model_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_P(GoldenTest, TensorsAndTokensEqualTheReference) {
  const std::string name = std::get<1>(GetParam()).name;
  const int delay = std::get<1>(GetParam()).delay;
  const auto golden = ReadGolden(kGoldenDir + "/tiny_golden.safetensors");
  const auto get = [&](const std::string& tensor) { return golden.at(name + "." + tensor); };
  const auto has = [&](const std::string& tensor) { return golden.count(name + "." + tensor) != 0; };
  const std::vector<int32_t> tokens = Decode(MelRows(get("pcm_s16").values, delay), delay, std::get<2>(GetParam()));

  if (has("mel")) Compare("mel", get("mel"), true, 1e-4);
  if (has("conv")) Compare("conv", get("conv"), false, 2e-5);
  Compare("encoder", has("encoder") ? get("encoder") : get("encoder_tail"), false, 3e-4);
  Compare("adapter", get("adapter"), false, 3e-4);
  Compare("logits", has("logits") ? get("logits") : get("logits_tail"), false, 3e-3);
  const GoldenTensor want = get("tokens");
  const GoldenTensor margin = get("margin");
  ASSERT_EQ(tokens.size(), want.values.size());
  for (size_t k = 0; k < tokens.size(); ++k) {
    if (tokens[k] == static_cast<int32_t>(want.values[k])) continue;
    EXPECT_LT(margin.values[k], kNearTie) << "token " << k;
    break;  // after a near tie the rest may differ
  }
}

TEST_P(GoldenTest, DelayEmbeddingEqualsTheReference) {
  const std::string name = std::get<1>(GetParam()).name;
  const int delay = std::get<1>(GetParam()).delay;
  const auto golden = ReadGolden(kGoldenDir + "/tiny_golden.safetensors");
  const GoldenTensor want = golden.at(name + ".t_cond");
  const std::vector<float> got = model::DelayEmbedding(delay, checkpoint_->config().decoder.dim);
  ASSERT_EQ(got.size(), want.values.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(static_cast<double>(got[i]), want.values[i], 5e-6) << i;
}

INSTANTIATE_TEST_SUITE_P(AllBackends, GoldenTest,
                         ::testing::Combine(::testing::ValuesIn(voxrt::testing::HostBackends()),
                                            ::testing::Values(Case{"short", 6}, Case{"delay2", 2}, Case{"delay30", 30},
                                                              Case{"long", 6}, Case{"one_sample", 6}),
                                            ::testing::Values<int64_t>(1, 7, 200)),
                         [](const auto& param) {
                           return std::get<0>(param.param) + "_" + std::get<1>(param.param).name + "_ticks" +
                                  std::to_string(std::get<2>(param.param));
                         });

}  // namespace
}  // namespace voxrt::engine
