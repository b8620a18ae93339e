// Properties of sessions on every compiled backend, tiny golden checkpoint (windows of 24 and 16 rows, so both rings
// wrap all the time): any chunking, streaming = offline, interleaved = alone, flush, far positions. Fixed seeds and one
// printed random seed.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "backend/registry.h"
#include "support/golden_file.h"
#include "support/root.h"
#include "support/transcribe.h"

namespace voxrt {
namespace {

const std::string kRoot = test::Root();

class SessionProperty : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<engine::Engine> NewEngine(engine::EngineOptions options = {}) {
    options.model_path = kRoot + "/tests/golden/tiny";
    options.backend = GetParam();
    auto engine = engine::Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? *std::move(engine) : nullptr;
  }
  void SetUp() override {
    engine_ = NewEngine();
    ASSERT_NE(engine_, nullptr);
    const auto golden = testing::ReadGolden(kRoot + "/tests/golden/tiny_golden.safetensors");
    for (const double sample : golden.at("short.pcm_s16").values)
      speech_.push_back(static_cast<float>(sample) / 32768.0f);
    for (const double token : golden.at("short.tokens").values) golden_tokens_.push_back(static_cast<int32_t>(token));
  }
  // The scalar oracle is some 30 times slower: fewer repetitions.
  static bool Slow() { return GetParam() == "ref"; }

  std::shared_ptr<engine::Engine> engine_;
  std::vector<float> speech_;
  std::vector<int32_t> golden_tokens_;
};

TEST_P(SessionProperty, AnyChunkingGivesTheSameTokens) {
  for (const size_t chunk :
       {size_t{37}, size_t{160}, size_t{1279}, size_t{1280}, size_t{1281}, size_t{16000}, speech_.size()}) {
    EXPECT_EQ(testing::Transcribe(*engine_, speech_, {}, [&] { return chunk; }).tokens, golden_tokens_) << chunk;
  }
  const std::vector<float> second(speech_.begin(), speech_.begin() + 4000);
  EXPECT_EQ(testing::Transcribe(*engine_, second, {}, [] { return 1; }).tokens,
            testing::Transcribe(*engine_, second).tokens);
  for (const uint32_t seed : {1u, 2u, std::random_device{}()}) {
    std::mt19937 random(seed);
    EXPECT_EQ(testing::Transcribe(*engine_, speech_, {}, [&] { return 1 + random() % 5000; }).tokens, golden_tokens_)
        << "seed " << seed;
  }
}

TEST_P(SessionProperty, SpeculationAndLongCallsDoNotChangeTokens) {
  std::vector<float> joined;
  for (int i = 0; i < (Slow() ? 1 : 4); ++i) joined.insert(joined.end(), speech_.begin(), speech_.end());
  const auto plain = NewEngine({.max_encoder_ticks = 1, .speculation_rows = 1});
  const std::vector<int32_t> want = testing::Transcribe(*plain, joined).tokens;
  for (const int rows : Slow() ? std::vector<int>{8} : std::vector<int>{2, 4, 8, 16}) {
    for (const int64_t ticks : Slow() ? std::vector<int64_t>{16} : std::vector<int64_t>{2, 16, 300}) {
      const auto engine = NewEngine({.max_encoder_ticks = ticks, .speculation_rows = rows});
      EXPECT_EQ(testing::Transcribe(*engine, joined, {.live = false}).tokens, want)
          << rows << " rows, " << ticks << " ticks";
    }
  }
}

TEST_P(SessionProperty, GuessedRowsSuitTheBackendUnlessAskedFor) {
  const auto device = backend::OpenDevice(GetParam(), {});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(engine_->info().speculation_rows, (*device)->info().guess_rows);
  EXPECT_EQ(NewEngine({.speculation_rows = 1})->info().speculation_rows, 1);
}

TEST_P(SessionProperty, SessionsAfterAWarmUpAreLikeSessionsWithoutOne) {
  const auto warm = NewEngine({.max_sessions = 8, .warm_up_sessions = 8});
  EXPECT_EQ(warm->info().session_bytes_now, 0);
  EXPECT_EQ(testing::Transcribe(*warm, speech_, {}, [] { return size_t{1280}; }).tokens, golden_tokens_);
  engine::EngineOptions more{.max_sessions = 2, .warm_up_sessions = 3};
  more.model_path = kRoot + "/tests/golden/tiny";
  more.backend = GetParam();
  EXPECT_EQ(engine::Engine::Create(more).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(SessionProperty, InterleavedSessionsAreEachAsAlone) {
  constexpr int kSessions = 6;
  std::vector<std::vector<float>> audio;
  std::vector<std::vector<int32_t>> want;
  std::vector<int> delays;
  for (int i = 0; i < kSessions; ++i) {
    std::vector<float> samples(speech_.begin() + i * 3000, speech_.end() - i * 1777);
    delays.push_back(80 * (1 + i * 3));
    want.push_back(testing::Transcribe(*engine_, samples, {.delay_ms = delays.back()}).tokens);
    audio.push_back(std::move(samples));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kSessions; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      const auto index = static_cast<size_t>(i);
      const auto heard =
          testing::Transcribe(*engine_, audio[index], {.delay_ms = delays[index]}, [&] { return 1 + random() % 3000; });
      EXPECT_EQ(heard.tokens, want[index]) << "session " << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(SessionProperty, FlushInTheMiddleEqualsInsertedZeros) {
  const int delay = 6;
  for (const size_t cut : {size_t{1}, size_t{1280}, size_t{20000}, size_t{31999}}) {
    std::vector<float> inserted(speech_.begin(), speech_.begin() + static_cast<std::ptrdiff_t>(cut));
    inserted.resize((cut + 1279) / 1280 * 1280 + 1280 * (delay + 11), 0.0f);
    inserted.insert(inserted.end(), speech_.begin() + static_cast<std::ptrdiff_t>(cut), speech_.end());
    auto session = *engine_->NewSession({.delay_ms = delay * 80, .all_tokens = true});
    testing::Heard heard;
    ASSERT_TRUE(session->FeedAll(std::span(speech_).first(cut)).ok());
    ASSERT_TRUE(session->Flush().ok());
    testing::Take(*session, engine::EventType::kFlushed, &heard);
    EXPECT_EQ(heard.tokens.size(), (cut + 1279) / 1280 + 10);
    ASSERT_TRUE(session->FeedAll(std::span(speech_).subspan(cut)).ok());
    ASSERT_TRUE(session->Finish().ok());
    testing::Take(*session, engine::EventType::kFinished, &heard);
    EXPECT_EQ(heard.tokens, testing::Transcribe(*engine_, inserted, {.delay_ms = delay * 80}).tokens)
        << "cut at " << cut;
    EXPECT_TRUE(std::is_sorted(heard.end_ms.begin(), heard.end_ms.end()));
    EXPECT_LE(heard.end_ms.back(), static_cast<int64_t>(speech_.size()) / 16);
  }
}

TEST_P(SessionProperty, FarPositionsGiveTheSameTokens) {
  for (const int64_t start : {int64_t{131052}, int64_t{10000000}, int64_t{100000000}}) {
    EXPECT_EQ(testing::Transcribe(*engine_, speech_, {.start_position = start}).tokens, golden_tokens_) << start;
  }
}

TEST_P(SessionProperty, AResetSessionIsAFreshOne) {
  auto session = *engine_->NewSession({.all_tokens = true});
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(session->FeedAll(std::span(speech_).first(static_cast<size_t>(5000 * (round + 1)))).ok());
    session->Reset();
  }
  testing::Heard heard;
  ASSERT_TRUE(session->FeedAll(speech_).ok());
  ASSERT_TRUE(session->Finish().ok());
  testing::Take(*session, engine::EventType::kFinished, &heard);
  EXPECT_EQ(heard.tokens, golden_tokens_);
}

TEST_P(SessionProperty, ManySessionsOneAfterAnotherLeaveNoMemoryBehind) {
  const std::vector<float> samples(speech_.begin(), speech_.begin() + 8000);
  const std::vector<int32_t> want = testing::Transcribe(*engine_, samples).tokens;
  for (int i = 0; i < (Slow() ? 10 : 100); ++i) ASSERT_EQ(testing::Transcribe(*engine_, samples).tokens, want) << i;
  // A finished session gave its slot back: all of them can be taken at once.
  std::vector<std::unique_ptr<engine::Session>> sessions;
  for (int i = 0; i < engine_->info().max_sessions; ++i) {
    auto session = engine_->NewSession({});
    ASSERT_TRUE(session.ok()) << i << ": " << session.status().message();
    sessions.push_back(*std::move(session));
  }
  EXPECT_FALSE(engine_->NewSession({}).ok());
}

TEST_P(SessionProperty, SilenceHasTheRightLengthAndBadDelaysAreRefusedByName) {
  const std::vector<float> silence(16000, 0.0f);
  EXPECT_EQ(testing::Transcribe(*engine_, silence).tokens.size(), 13u + 11u);
  const auto refused = engine_->NewSession({.delay_ms = 100});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("80 or 160"), std::string::npos) << refused.status().message();
  EXPECT_FALSE(engine_->NewSession({.delay_ms = 2480}).ok());
  EXPECT_FALSE(engine_->NewSession({.delay_ms = -80}).ok());
}

INSTANTIATE_TEST_SUITE_P(AllBackends, SessionProperty, ::testing::ValuesIn(testing::HostBackends()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace voxrt
