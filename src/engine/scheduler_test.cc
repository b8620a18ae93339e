// Scheduler and SessionCore with a fake model: order, batching, flush, reset, speculation, limits, faults.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "engine/fake_step_runner.h"

namespace voxrt::engine {
namespace {

constexpr int kLeft = 4;
constexpr int kDelay = 2;
constexpr auto kLong = std::chrono::seconds(20);

std::string TekkenJson() {
  std::string vocab;
  for (int i = 0; i < 256; ++i) {
    static const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char bytes[] = {kAlphabet[i >> 2], kAlphabet[(i & 3) << 4], '=', '=', 0};
    vocab += (i == 0 ? "" : ",") + std::string("{\"rank\":") + std::to_string(i) + ",\"token_bytes\":\"" + bytes +
             "\",\"token_str\":null}";
  }
  return "{\"config\":{\"default_vocab_size\":1256,\"default_num_special_tokens\":1000,\"version\":\"v13\"},\"vocab\":"
         "[" +
         vocab +
         "],\"special_tokens\":[{\"rank\":1,\"token_str\":\"<s>\",\"is_control\":true},"
         "{\"rank\":2,\"token_str\":\"</"
         "s>\",\"is_control\":true},{\"rank\":32,\"token_str\":\"[STREAMING_PAD]\",\"is_control\":true},"
         "{\"rank\":33,\"token_str\":\"[STREAMING_WORD]\",\"is_control\":true}],\"audio\":{\"streaming_n_left_pad_"
         "tokens\":" +
         std::to_string(kLeft) + "}}";
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() : tekken_(*text::Tekken::Parse(TekkenJson())) {}

  void Start(int max_sessions, int64_t guess_rows, int prefix_slots = 0, int64_t max_encode_ticks = 16) {
    StepShape shape{.mel_bins = 128,
                    .mel_per_tick = 8,
                    .vocab_size = 1256,
                    .max_encode_ticks = max_encode_ticks,
                    .max_decode_rows = 32,
                    .max_item_rows = guess_rows};
    auto runner = std::make_unique<FakeStepRunner>(shape);
    runner_ = runner.get();
    scheduler_ = std::make_unique<Scheduler>(
        std::move(runner),
        SchedulerOptions{
            .max_sessions = max_sessions, .prefix_slots = prefix_slots, .guess_rows = guess_rows, .shape = shape});
  }
  std::shared_ptr<SessionCore> NewCore(SessionOptions options = {}) {
    options.all_tokens = true;
    auto core = std::make_shared<SessionCore>(
        SessionSetup{.tekken = &tekken_, .mel = {}, .delay_tokens = kDelay, .wake = [this] { scheduler_->Wake(); }},
        options);
    if (!scheduler_->Add(core).ok()) return nullptr;
    return core;
  }
  static std::vector<float> Noise(size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> samples(count);
    for (float& sample : samples) sample = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
    return samples;
  }
  // Everything until kFinished or kError; tokens only.
  static std::vector<int32_t> Drain(SessionCore& core, EventType until = EventType::kFinished) {
    std::vector<int32_t> tokens;
    std::vector<Event> events;
    for (;;) {
      EXPECT_TRUE(core.Wait(&events, kLong)) << "no event in time";
      if (events.empty()) return tokens;
      for (const Event& event : events) {
        if (event.type == EventType::kToken) tokens.push_back(event.token);
        if (event.type == EventType::kError) ADD_FAILURE() << event.status.message();
        if (event.type == until) return tokens;
      }
    }
  }
  // One tick at a time, straight through the fake network: the oracle.
  std::vector<int32_t> Oracle(const std::vector<float>& samples) {
    StepShape shape{.mel_bins = 128, .mel_per_tick = 8, .vocab_size = 1256};
    FakeStepRunner runner(shape);
    audio::MelStream mel{audio::MelOptions{}};
    std::vector<float> rows;
    std::vector<float> padded(kLeft * 1280, 0.0f);
    padded.insert(padded.end(), samples.begin(), samples.end());
    padded.resize(padded.size() + (1280 - samples.size() % 1280) % 1280 + 1280 * (kDelay + 11));
    mel.Push(padded, &rows);
    mel.Finish(&rows);
    std::vector<int32_t> tokens;
    int32_t input = 1;
    for (int64_t tick = 0; tick < static_cast<int64_t>(padded.size()) / 1280; ++tick) {
      const EncodeItem encode{.first_tick = tick, .mel = rows.data() + static_cast<size_t>(tick) * 1024};
      const DecodeItem decode{.first_index = tick, .delay_tokens = kDelay, .tokens = {&input, 1}};
      DecodeOutput output;
      EXPECT_TRUE(runner.LiveTick({&encode, 1}, {&decode, 1}, false, &output).ok());
      input = FakeStepRunner::kPad;
      if (tick < kLeft + kDelay) continue;
      input = output.tokens[0];
      tokens.push_back(input);
    }
    return tokens;
  }

  text::Tekken tekken_;
  std::unique_ptr<Scheduler> scheduler_;
  FakeStepRunner* runner_ = nullptr;
};

TEST_F(SchedulerTest, AnyChunkingGivesTheTokensOfOneTickAtATime) {
  const std::vector<float> samples = Noise(1280 * 9 + 77, 1);
  const std::vector<int32_t> want = Oracle(samples);
  EXPECT_EQ(want.size(), 10u + 11u);
  for (const size_t chunk : {size_t{1}, size_t{37}, size_t{1280}, size_t{5000}, samples.size()}) {
    for (const int64_t guesses : {1, 2, 4, 8}) {
      Start(2, guesses);
      auto core = NewCore();
      ASSERT_NE(core, nullptr);
      for (size_t at = 0; at < samples.size(); at += chunk) {
        ASSERT_TRUE(core->FeedAll(std::span(samples).subspan(at, std::min(chunk, samples.size() - at))).ok());
      }
      ASSERT_TRUE(core->Finish().ok());
      EXPECT_EQ(Drain(*core), want) << "chunk " << chunk << " guesses " << guesses;
    }
  }
}

TEST_F(SchedulerTest, ManySessionsFedByThreadsAreEachAsAlone) {
  Start(8, 4, /*prefix_slots=*/1);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const std::vector<float> samples = Noise(1280 * (3 + i * 5) + i, i);
      auto core = NewCore({.live = i % 2 == 0});
      ASSERT_NE(core, nullptr);
      std::mt19937 random(i);
      for (size_t at = 0; at < samples.size();) {
        const size_t count = std::min<size_t>(1 + random() % 4000, samples.size() - at);
        ASSERT_TRUE(core->FeedAll(std::span(samples).subspan(at, count)).ok());
        at += count;
      }
      ASSERT_TRUE(core->Finish().ok());
      EXPECT_EQ(Drain(*core), Oracle(samples)) << "session " << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(runner_->clones, 0);
}

TEST_F(SchedulerTest, ManyLiveSessionsThatFellBehindCatchUpInOneBatch) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool closed = false;
    std::vector<size_t> batches;  // sizes of the live steps since it was closed
  };
  constexpr size_t kSessions = 6;
  Start(kSessions, 4, /*prefix_slots=*/1);
  const auto gate = std::make_shared<Gate>();
  runner_->before_live_tick = [gate](size_t sessions) {
    std::unique_lock lock(gate->mutex);
    if (gate->closed || !gate->batches.empty()) gate->batches.push_back(sessions);
    gate->changed.notify_all();
    gate->changed.wait(lock, [&] { return !gate->closed; });
  };
  // Six sessions under way, all their ticks done.
  std::vector<std::shared_ptr<SessionCore>> cores;
  const std::vector<float> samples = Noise(1280 * 10, 1);
  for (size_t i = 0; i < kSessions; ++i) {
    cores.push_back(NewCore());
    ASSERT_TRUE(cores[i]->FeedAll(samples).ok());
    ASSERT_TRUE(cores[i]->Flush().ok());
    Drain(*cores[i], EventType::kFlushed);
  }
  {
    const std::lock_guard lock(gate->mutex);
    gate->closed = true;
  }
  ASSERT_TRUE(cores[0]->FeedAll(std::span(samples).first(1280)).ok());
  {
    std::unique_lock lock(gate->mutex);
    ASSERT_TRUE(gate->changed.wait_for(lock, kLong, [&] { return !gate->batches.empty(); }));
  }
  // The device is busy with one tick; ten more come for each session meanwhile.
  const int64_t bulk_before = scheduler_->stats().bulk_ticks;
  for (const auto& core : cores) ASSERT_TRUE(core->FeedAll(samples).ok());
  {
    const std::lock_guard lock(gate->mutex);
    gate->closed = false;
    gate->changed.notify_all();
  }
  for (const auto& core : cores) {
    std::vector<Event> events;
    for (size_t tokens = 0; tokens < 8; tokens += events.size()) ASSERT_TRUE(core->Wait(&events, kLong));
  }
  const std::lock_guard lock(gate->mutex);
  ASSERT_GE(gate->batches.size(), 8u);
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(gate->batches[i], kSessions) << "live step " << i;
  EXPECT_EQ(scheduler_->stats().bulk_ticks, bulk_before);
}

TEST_F(SchedulerTest, FlushEqualsInsertedZerosAndLosesNothing) {
  Start(1, 4);
  const std::vector<float> first = Noise(1280 * 5 + 300, 3);
  const std::vector<float> second = Noise(1280 * 4 + 9, 4);
  std::vector<float> joined = first;
  joined.resize(1280 * 6 + 1280 * (kDelay + 11));
  joined.insert(joined.end(), second.begin(), second.end());
  auto core = NewCore();
  ASSERT_TRUE(core->FeedAll(first).ok());
  ASSERT_TRUE(core->Flush().ok());
  std::vector<int32_t> tokens = Drain(*core, EventType::kFlushed);
  EXPECT_EQ(tokens.size(), 6u + 10u);
  ASSERT_TRUE(core->FeedAll(second).ok());
  ASSERT_TRUE(core->Finish().ok());
  const std::vector<int32_t> rest = Drain(*core);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokens, Oracle(joined));
}

TEST_F(SchedulerTest, FinishAfterFlushAddsOnlyWhatIsPending) {
  Start(1, 4);
  const std::vector<float> samples = Noise(1280 * 5, 5);
  auto core = NewCore();
  ASSERT_TRUE(core->FeedAll(samples).ok());
  ASSERT_TRUE(core->Flush().ok());
  ASSERT_TRUE(core->Flush().ok());  // nothing new: answered, nothing inserted
  std::vector<int32_t> tokens = Drain(*core, EventType::kFlushed);
  ASSERT_TRUE(core->Finish().ok());
  const std::vector<int32_t> rest = Drain(*core);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokens, Oracle(samples));
}

TEST_F(SchedulerTest, EmptyStreamFinishesWithTheElevenTokensOfItsRightPad) {
  Start(1, 4);
  auto core = NewCore();
  ASSERT_TRUE(core->Finish().ok());
  EXPECT_EQ(Drain(*core), Oracle({}));
  EXPECT_FALSE(core->Feed(Noise(10, 1)).ok());
}

TEST_F(SchedulerTest, ResetStartsAFreshStreamEvenInMidWork) {
  Start(1, 4);
  const std::vector<float> samples = Noise(1280 * 7 + 1, 6);
  auto core = NewCore();
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(core->FeedAll(Noise(1280 * 20, static_cast<uint32_t>(round))).ok());
    core->Reset();
  }
  ASSERT_TRUE(core->FeedAll(samples).ok());
  ASSERT_TRUE(core->Finish().ok());
  EXPECT_EQ(Drain(*core), Oracle(samples));
}

TEST_F(SchedulerTest, TimesAreOfTheFedAudioAndNeverBeyondIt) {
  Start(1, 4);
  auto core = NewCore();
  ASSERT_TRUE(core->FeedAll(Noise(1280 * 3 + 640, 7)).ok());  // 280 ms
  ASSERT_TRUE(core->Flush().ok());
  ASSERT_TRUE(core->FeedAll(Noise(1280 * 2, 8)).ok());  // to 440 ms
  ASSERT_TRUE(core->Finish().ok());
  std::vector<Event> events;
  std::vector<int64_t> ends;
  for (bool done = false; !done;) {
    ASSERT_TRUE(core->Wait(&events, kLong));
    for (const Event& event : events) {
      if (event.type == EventType::kToken) ends.push_back(event.end_ms);
      done = done || event.type == EventType::kFinished;
    }
  }
  EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
  EXPECT_EQ(ends[0], 80);
  EXPECT_EQ(ends[2], 240);
  EXPECT_EQ(ends[3], 280);                    // the flush began at 280 ms
  EXPECT_EQ(ends[4 + kDelay + 11 - 1], 280);  // its zeros take no time
  EXPECT_EQ(ends[4 + kDelay + 11], 360);
  EXPECT_EQ(ends.back(), 440);
}

TEST_F(SchedulerTest, SlotsAreRefusedWhenTakenAndComeBackWhenClosed) {
  Start(2, 1);
  for (int round = 0; round < 200; ++round) {
    auto a = NewCore();
    auto b = NewCore();
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    ASSERT_EQ(NewCore(), nullptr);
    ASSERT_TRUE(a->FeedAll(Noise(1280 * 2, 1)).ok());
    scheduler_->Remove(*a);
    scheduler_->Remove(*b);
  }
}

TEST_F(SchedulerTest, PendingAudioIsBounded) {
  Start(1, 1);
  runner_->refused_slot = 0;  // nothing is ever processed
  auto core = NewCore({.max_pending_samples = 16000});
  const std::vector<float> samples = Noise(200000, 1);
  size_t taken = 0;
  for (int i = 0; i < 10; ++i) {
    const Result<size_t> result = core->Feed(samples);
    if (!result.ok()) break;
    taken += *result;
  }
  EXPECT_LE(taken, 16000u + 1280u);
}

TEST_F(SchedulerTest, ASessionWithoutRoomFailsAlone) {
  Start(2, 4);
  const std::vector<float> samples = Noise(1280 * 6, 9);
  runner_->refused_slot = 0;
  auto first = NewCore();   // slot 0
  auto second = NewCore();  // slot 1
  ASSERT_TRUE(second->FeedAll(samples).ok());
  ASSERT_TRUE(second->Finish().ok());
  EXPECT_EQ(Drain(*second), Oracle(samples));
  std::vector<Event> events;
  ASSERT_TRUE(first->Wait(&events, kLong));
  EXPECT_EQ(events.back().type, EventType::kError);
  EXPECT_EQ(events.back().status.code(), StatusCode::kResourceExhausted);
}

TEST_F(SchedulerTest, ALostDeviceEndsAllSessionsWithTheReason) {
  Start(2, 4);
  auto first = NewCore();
  auto second = NewCore();
  runner_->device_lost = true;
  ASSERT_TRUE(first->FeedAll(Noise(1280 * 2, 1)).ok());
  for (auto& core : {first, second}) {
    std::vector<Event> events;
    while (core->Wait(&events, kLong) && events.back().type != EventType::kError) {
    }
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().status.code(), StatusCode::kDeviceLost);
  }
  EXPECT_EQ(scheduler_->health().code(), StatusCode::kDeviceLost);
  EXPECT_EQ(NewCore(), nullptr);
}

TEST_F(SchedulerTest, SamplingDependsOnSeedAndIndexOnly) {
  const std::vector<float> samples = Noise(1280 * 12, 11);
  std::vector<std::vector<int32_t>> runs;
  for (const size_t chunk : {size_t{100}, samples.size()}) {
    Start(1, 4);
    auto core = NewCore({.temperature = 1.0f, .seed = 5});
    for (size_t at = 0; at < samples.size(); at += chunk) {
      ASSERT_TRUE(core->FeedAll(std::span(samples).subspan(at, std::min(chunk, samples.size() - at))).ok());
    }
    ASSERT_TRUE(core->Finish().ok());
    runs.push_back(Drain(*core));
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_F(SchedulerTest, VoicedAudioWithoutTextIsReportedOnce) {
  // A fake network always gives some text, so the detector's limit is set to one blank frame.
  Start(1, 1);
  auto core = NewCore({.rut_seconds = 0.08});
  ASSERT_TRUE(core->FeedAll(Noise(1280 * 40, 2)).ok());
  ASSERT_TRUE(core->Finish().ok());
  std::vector<Event> events;
  int ruts = 0;
  bool text_between = true;
  for (bool done = false; !done;) {
    ASSERT_TRUE(core->Wait(&events, kLong));
    for (const Event& event : events) {
      if (event.type == EventType::kToken && event.token >= 1000) text_between = true;
      if (event.type == EventType::kBlankRut) {
        EXPECT_TRUE(text_between) << "two reports without text in between";
        text_between = false;
        ++ruts;
      }
      done = done || event.type == EventType::kFinished;
    }
  }
  EXPECT_GT(ruts, 0);
}

}  // namespace
}  // namespace voxrt::engine
