// The demo checkpoint and its clips: reference tokens (numpy reference, fp32) at several delays, and the word error
// rate against the true texts.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "backend/registry.h"
#include "base/json.h"
#include "support/golden_file.h"
#include "support/root.h"
#include "support/transcribe.h"
#include "text/word_error.h"

namespace voxrt {
namespace {

const std::string kRoot = test::Root();
constexpr double kNearTie = 1e-3;

class DemoTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto engine = engine::Engine::Create({.model_path = kRoot + "/models/demo", .backend = GetParam()});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }
  std::shared_ptr<engine::Engine> engine_;
};

TEST_P(DemoTest, EveryClipGivesItsReferenceTokens) {
  const auto golden = testing::ReadGolden(kRoot + "/tests/golden/demo_golden.safetensors");
  int checked = 0;
  for (const auto& [name, want] : golden) {
    if (!name.ends_with(".tokens")) continue;
    const std::string key = name.substr(0, name.size() - 7);  // CLIP.dDELAY
    const size_t dot = key.rfind(".d");
    const int delay = std::stoi(key.substr(dot + 2));
    const std::vector<float> samples = testing::ReadClip(kRoot + "/models/demo/clips/" + key.substr(0, dot) + ".wav");
    const testing::Heard heard = testing::Transcribe(*engine_, samples, {.delay_ms = delay * 80, .live = false});
    const testing::GoldenTensor& margin = golden.at(key + ".margin");
    ASSERT_EQ(heard.tokens.size(), want.values.size()) << key;
    for (size_t k = 0; k < heard.tokens.size(); ++k) {
      if (heard.tokens[k] == static_cast<int32_t>(want.values[k])) continue;
      EXPECT_LT(margin.values[k], kNearTie) << key << " token " << k;
      break;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 14);
}

// Where the tokens are checked already, one backend is enough.
class DemoWordErrorTest : public DemoTest {};

TEST_P(DemoWordErrorTest, WordErrorRateOfTheClipsIsTheDocumentedOne) {
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
  EXPECT_EQ(words, 198u);
  EXPECT_EQ(errors, 17);
}

TEST_P(DemoWordErrorTest, AudioCutAtTheEndOfItsLastWordKeepsThatWord) {
  std::ifstream file(kRoot + "/models/demo/clips/clips.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto clips = base::ParseJson(text.str());
  ASSERT_TRUE(clips.ok()) << clips.status().message();
  for (const base::Json& clip : *clips->AsArray()) {
    const std::string& name = *clip.Find("file")->AsString();
    const std::vector<float> samples = testing::ReadClip(kRoot + "/models/demo/clips/" + name);
    const auto end = static_cast<size_t>(*clip.Find("word_end_s")->AsArray()->back().AsDouble() * 16000.0);
    ASSERT_LT(end, samples.size());
    for (const int delay_ms : {480, 960, 2400}) {
      const engine::SessionOptions options{.delay_ms = delay_ms, .live = false};
      const auto whole = text::NormalisedWords(testing::Transcribe(*engine_, samples, options).text);
      const auto cut =
          text::NormalisedWords(testing::Transcribe(*engine_, std::span(samples).first(end), options).text);
      ASSERT_FALSE(cut.empty()) << name << " " << delay_ms;
      EXPECT_EQ(cut.back(), whole.back()) << name << " " << delay_ms;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneBackend, DemoWordErrorTest, ::testing::Values(testing::HostBackends().front()),
                         [](const auto& param) { return param.param; });
INSTANTIATE_TEST_SUITE_P(AllBackends, DemoTest, ::testing::ValuesIn(testing::HostBackends()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace voxrt
