#include "server/stream/stream_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <mutex>

#include "server/testing/fake_engine.h"

namespace voxrt::server {
namespace {

using testing::FakeEngine;
using Type = Command::Type;

std::vector<float> Speech(int samples, int seed) {
  std::vector<float> out;
  for (int i = 0; i < samples; ++i)
    out.push_back(std::round(12000.0f * std::sin(static_cast<float>(i * (seed + 3)) * 0.01f)) / 32768.0f);
  return out;
}
std::string ToS16(const std::vector<float>& samples) {
  std::string bytes;
  for (const float sample : samples) {
    const auto value = static_cast<int16_t>(sample * 32768.0f);
    bytes += static_cast<char>(value);
    bytes += static_cast<char>(value >> 8);
  }
  return bytes;
}

class StreamDriverTest : public ::testing::Test {
 protected:
  explicit StreamDriverTest() : engine_(FakeEngine::Create(4)) { Restart({}); }

  void Restart(DriverOptions options) {
    driver_ = std::make_unique<StreamDriver>(
        engine_, std::move(options), std::make_shared<BacklogBudget>(),
        [this] {
          const std::lock_guard lock(mutex_);
          woken_ = true;
          changed_.notify_all();
        },
        nullptr);
  }
  void Do(Type type, std::string bytes = {}) {
    ASSERT_TRUE(driver_->Execute({.type = type, .bytes = std::move(bytes), .options = {}}, Clock::now()).ok());
  }
  void Configure(StreamOptions options) {
    ASSERT_TRUE(driver_->Execute({.type = Type::kConfigure, .bytes = {}, .options = options}, Clock::now()).ok());
  }
  void Say(const std::vector<float>& samples, size_t step = 2560) {
    const std::string bytes = ToS16(samples);
    for (size_t i = 0; i < bytes.size(); i += step) Do(Type::kAudio, bytes.substr(i, step));
  }
  // Pumps until `count` utterances are done; returns their texts.
  std::vector<std::string> Finish(size_t count) {
    size_t done = 0;
    while (done < count) {
      std::vector<StreamEvent> events;
      status_ = driver_->Pump(Clock::now(), &events);
      for (const StreamEvent& event : events) {
        if (event.type == StreamEvent::Type::kText)
          texts_.resize(std::max(texts_.size(), static_cast<size_t>(event.utterance) + 1));
        if (event.type == StreamEvent::Type::kText) texts_[static_cast<size_t>(event.utterance)] += event.text;
        if (event.type == StreamEvent::Type::kDone) ++done;
        log_.push_back(event);
      }
      if (!status_.ok() || done >= count) break;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::seconds(20), [&] { return woken_; });
      woken_ = false;
    }
    texts_.resize(std::max(texts_.size(), count));
    return texts_;
  }

  std::shared_ptr<FakeEngine> engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::unique_ptr<StreamDriver> driver_;
  std::vector<std::string> texts_;
  std::vector<StreamEvent> log_;
  Status status_;
};

TEST_F(StreamDriverTest, EveryChunkingGivesTheTextOfTheEngineAlone) {
  const std::vector<float> speech = Speech(40123, 1);
  const std::string expected = engine_->Transcribe(speech, 480);
  ASSERT_GT(expected.size(), 20U);
  for (const size_t step : {1, 3, 999, 4096, 1000000}) {
    Restart({});
    texts_.clear();
    Configure({});
    Say(speech, step);
    Do(Type::kEndUtterance);
    EXPECT_EQ(Finish(1)[0], expected) << step;
    EXPECT_FALSE(driver_->owes());
  }
}

TEST_F(StreamDriverTest, UtterancesAreIndependentAndInOrder) {
  const std::vector<float> one = Speech(20000, 1), two = Speech(30000, 2);
  Configure({});
  Say(one);
  Do(Type::kEndUtterance);
  Do(Type::kEndUtterance);  // empty
  Say(two);
  Do(Type::kEndUtterance);
  const std::vector<std::string> texts = Finish(3);
  EXPECT_EQ(texts[0], engine_->Transcribe(one, 480));
  EXPECT_EQ(texts[1], "");
  EXPECT_EQ(texts[2], engine_->Transcribe(two, 480));
}

TEST_F(StreamDriverTest, UsageCountsPromptStepsAndSamples) {
  Configure({});
  Say(Speech(16000, 1));
  Do(Type::kEndUtterance);
  Finish(1);
  EXPECT_EQ(log_.back().prompt_tokens, 39);
  EXPECT_EQ(log_.back().completion_tokens, 13 + 11);
  EXPECT_EQ(log_.back().samples, 16000);
}

TEST_F(StreamDriverTest, NothingIsTranscribedBeforeItsStart) {
  StreamOptions options;
  options.waits_for_start = true;
  Configure(options);
  Say(Speech(50000, 1));
  std::vector<StreamEvent> events;
  ASSERT_TRUE(driver_->Pump(Clock::now(), &events).ok());
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(engine_->info().sessions, 0) << "no slot of the device before it is needed";
  Do(Type::kStart);
  Do(Type::kEndUtterance);
  Say(Speech(20000, 2));  // belongs to the next, not started one
  EXPECT_EQ(Finish(1)[0], engine_->Transcribe(Speech(50000, 1), 480));
  Do(Type::kStart);
  Do(Type::kEndUtterance);
  EXPECT_EQ(Finish(1)[1], engine_->Transcribe(Speech(20000, 2), 480));
}

TEST_F(StreamDriverTest, ClearDropsTheOpenUtteranceOnly) {
  const std::vector<float> kept = Speech(20000, 1), after = Speech(25000, 3);
  Configure({});
  Say(kept);
  Do(Type::kEndUtterance);
  Say(Speech(30000, 2));
  Do(Type::kClear);
  Say(after);
  Do(Type::kEndUtterance);
  const std::vector<std::string> texts = Finish(2);
  EXPECT_EQ(texts[0], engine_->Transcribe(kept, 480));
  EXPECT_EQ(texts[1], engine_->Transcribe(after, 480));
}

TEST_F(StreamDriverTest, ClearAfterFeedingStartsOver) {
  Configure({});
  Say(Speech(30000, 2));
  std::vector<StreamEvent> events;
  ASSERT_TRUE(driver_->Pump(Clock::now(), &events).ok());
  Do(Type::kClear);
  const std::vector<float> after = Speech(25000, 3);
  Say(after);
  Do(Type::kEndUtterance);
  EXPECT_EQ(Finish(1)[0], engine_->Transcribe(after, 480));
}

TEST_F(StreamDriverTest, TheDelayHoldsFromTheNextUtterance) {
  const std::vector<float> speech = Speech(30000, 1);
  StreamOptions options;
  Configure(options);
  Say(speech);
  Do(Type::kEndUtterance);
  options.delay_ms = 960;
  Configure(options);
  Say(speech);
  Do(Type::kEndUtterance);
  const std::vector<std::string> texts = Finish(2);
  EXPECT_EQ(texts[0], engine_->Transcribe(speech, 480));
  EXPECT_EQ(texts[1], engine_->Transcribe(speech, 960));
}

TEST_F(StreamDriverTest, OtherRatesAreResampled) {
  StreamOptions options;
  options.format = {Encoding::kMulaw, 8000};
  Configure(options);
  Do(Type::kAudio, std::string(8000, '\x20'));
  Do(Type::kEndUtterance);
  Finish(1);
  EXPECT_EQ(log_.back().samples, 16000);
}

TEST_F(StreamDriverTest, VoiceActivityEndsUtterances) {
  StreamOptions options;
  options.vad.enabled = true;
  options.vad.silence_duration_ms = 200;
  Configure(options);
  for (int i = 0; i < 2; ++i) {
    Say(std::vector<float>(8000, 0.0f));
    Say(Speech(12000, i));
    Say(std::vector<float>(8000, 0.0f));
  }
  const std::vector<std::string> texts = Finish(2);
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_FALSE(texts[1].empty());
  std::vector<StreamEvent::Type> order;
  for (const StreamEvent& event : log_) {
    if (event.type != StreamEvent::Type::kText && event.utterance == 1) order.push_back(event.type);
  }
  EXPECT_THAT(order, ::testing::ElementsAre(StreamEvent::Type::kSpeechStarted, StreamEvent::Type::kSpeechStopped,
                                            StreamEvent::Type::kBoundary, StreamEvent::Type::kDone));
}

TEST_F(StreamDriverTest, AFailingSessionIsAnErrorHereAndNobodyElses) {
  engine_->FailNextSession();
  Configure({});
  Say(Speech(30000, 1));
  Do(Type::kEndUtterance);
  Finish(1);
  EXPECT_EQ(status_.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine_->health().ok());
  EXPECT_FALSE(engine_->Transcribe(Speech(30000, 1), 480).empty());
}

TEST_F(StreamDriverTest, ManySecondsAtOnceGoThroughTheFile) {
  DriverOptions options;
  options.limits.memory_bytes = 10000;
  options.max_pending_samples = 16000 * 5;
  Restart(options);
  const std::vector<float> speech = Speech(16000 * 20, 5);
  Configure({});
  Say(speech, 4096);
  EXPECT_GT(driver_->backlog_bytes(), 500000);
  EXPECT_FALSE(driver_->paced(Clock::now()));
  Do(Type::kEndUtterance);
  EXPECT_EQ(Finish(1)[0], engine_->Transcribe(speech, 480));
}

TEST_F(StreamDriverTest, LagIsTheAgeOfTheAudioThatTheNextTokenNeeds) {
  engine_->Stall(true);
  Configure({});
  const Clock::time_point then = Clock::now();
  ASSERT_TRUE(
      driver_->Execute({.type = Type::kAudio, .bytes = std::string(2 * 16000, '\0'), .options = {}}, then).ok());
  std::vector<StreamEvent> events;
  ASSERT_TRUE(driver_->Pump(then, &events).ok());
  EXPECT_NEAR(driver_->LagSeconds(then + std::chrono::seconds(3)), 3.0, 0.01);
  engine_->Stall(false);
  Do(Type::kEndUtterance);
  Finish(1);
  EXPECT_EQ(driver_->LagSeconds(Clock::now() + std::chrono::hours(1)), 0.0);
}

TEST_F(StreamDriverTest, TheSlotComesBackWithTheDriver) {
  Configure({});
  Say(Speech(30000, 1));
  std::vector<StreamEvent> events;
  ASSERT_TRUE(driver_->Pump(Clock::now(), &events).ok());
  EXPECT_EQ(engine_->info().sessions, 1);
  driver_.reset();
  while (engine_->info().sessions != 0) std::this_thread::yield();
}

}  // namespace
}  // namespace voxrt::server
