// The demo checkpoint on a GPU, through engine and sessions: reference tokens wherever bf16 activations cannot tip the
// scales, the documented word error rate within a few words, and the same tokens alone, live, and beside other
// sessions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "backend/registry.h"
#include "base/json.h"
#include "support/golden_file.h"
#include "support/root.h"
#include "support/transcribe.h"
#include "text/word_error.h"

namespace voxrt {
namespace {

const std::string kRoot = test::Root();
// Logits of bf16 activations differ from fp32 ones by up to about 0.1 on this checkpoint (its logits spread over some
// 20); where the best two are further apart than four times that, the token must be the reference's.
constexpr double kDecidedMargin = 0.4;

class GpuEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = backend::OpenDevice("cuda", {});
    if (!device.ok()) GTEST_SKIP() << "no CUDA device: " << device.status().message();
    auto engine = engine::Engine::Create({.model_path = kRoot + "/models/demo", .backend = "cuda", .max_sessions = 8});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *std::move(engine);
    info_ = (*device)->info();
  }
  static std::vector<float> Clip(const std::string& name) {
    return testing::ReadClip(kRoot + "/models/demo/clips/" + name + ".wav");
  }
  std::shared_ptr<engine::Engine> engine_;
  backend::DeviceInfo info_;
};

TEST_F(GpuEngineTest, TheDeviceTellsItsNominalMemoryBandwidth) {
  std::printf("%s: %.1f GB/s\n", info_.description.c_str(), static_cast<double>(info_.memory_bytes_per_s) / 1e9);
  EXPECT_GT(info_.memory_bytes_per_s, 100'000'000'000);  // cards of compute capability 8.0 and later: 0.1 to 8 TB/s
  EXPECT_LT(info_.memory_bytes_per_s, 20'000'000'000'000);
}

TEST_F(GpuEngineTest, ClipsGiveTheirReferenceTokensUpToTheFirstUndecidedOne) {
  const auto golden = testing::ReadGolden(kRoot + "/tests/golden/demo_golden.safetensors");
  size_t equal_clips = 0;
  size_t clips = 0;
  size_t compared = 0;
  for (const auto& [name, want] : golden) {
    if (!name.ends_with(".tokens")) continue;
    const std::string key = name.substr(0, name.size() - 7);  // CLIP.dDELAY
    const size_t dot = key.rfind(".d");
    const int delay = std::stoi(key.substr(dot + 2));
    const testing::Heard heard =
        testing::Transcribe(*engine_, Clip(key.substr(0, dot)), {.delay_ms = delay * 80, .live = false});
    const testing::GoldenTensor& margin = golden.at(key + ".margin");
    ASSERT_EQ(heard.tokens.size(), want.values.size()) << key;
    ++clips;
    bool equal = true;
    for (size_t k = 0; k < heard.tokens.size() && equal; ++k) {
      equal = heard.tokens[k] == static_cast<int32_t>(want.values[k]);
      if (equal) {
        ++compared;
      } else {
        EXPECT_LT(margin.values[k], kDecidedMargin) << key << " token " << k;
        std::printf("%s: first difference at token %zu of %zu, reference margin %.4f\n", key.c_str(), k,
                    heard.tokens.size(), margin.values[k]);
      }
    }
    if (equal) ++equal_clips;
  }
  std::printf("%zu of %zu clips equal to the last token, %zu tokens compared\n", equal_clips, clips, compared);
  EXPECT_EQ(clips, 14u);
  EXPECT_GE(equal_clips * 2, clips);
}

TEST_F(GpuEngineTest, WordErrorRateIsTheDocumentedOneWithinAFewWords) {
  std::ifstream file(kRoot + "/models/demo/clips/clips.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto clips = base::ParseJson(text.str());
  ASSERT_TRUE(clips.ok()) << clips.status().message();
  int errors = 0;
  size_t words = 0;
  for (const base::Json& clip : *clips->AsArray()) {
    const auto samples = testing::ReadClip(kRoot + "/models/demo/clips/" + *clip.Find("file")->AsString());
    const auto reference = text::NormalisedWords(*clip.Find("text")->AsString());
    const testing::Heard heard = testing::Transcribe(*engine_, samples, {.delay_ms = 480, .live = false});
    errors += text::WordErrors(reference, text::NormalisedWords(heard.text));
    words += reference.size();
  }
  std::printf("%d of %zu words wrong\n", errors, words);
  EXPECT_EQ(words, 198u);
  EXPECT_NEAR(errors, 17, 4);  // fp32: 17
}

TEST_F(GpuEngineTest, LiveInSmallChunksAndBesideOthersGivesTheTokensOfTheWholeFileAlone) {
  const char* const names[] = {"flite_slt_0", "flite_rms_2", "espeak_en_8"};
  std::vector<std::vector<float>> clips;
  for (const char* name : names) clips.push_back(Clip(name));
  std::vector<std::vector<int32_t>> alone;
  for (const auto& clip : clips) alone.push_back(testing::Transcribe(*engine_, clip, {.live = false}).tokens);
  // All three at once, live, in chunks that are no multiple of a tick.
  std::vector<testing::Heard> heard(clips.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clips.size(); ++i) {
    threads.emplace_back(
        [&, i] { heard[i] = testing::Transcribe(*engine_, clips[i], {.live = true}, [&] { return 1000 + 77 * i; }); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < clips.size(); ++i) EXPECT_EQ(heard[i].tokens, alone[i]) << names[i];
}

}  // namespace
}  // namespace voxrt
