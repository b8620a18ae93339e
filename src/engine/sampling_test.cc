#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <vector>

namespace voxrt::engine {
namespace {

TEST(Philox, MatchesThePublishedKnownAnswers) {
  // Random123's known-answer vectors for philox4x32-10.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(SampleToken, FollowsTheProbabilities) {
  const std::vector<float> logits = {0.0f, 1.0f, -100.0f, 2.0f};
  std::vector<int> counts(4);
  for (int64_t i = 0; i < 20000; ++i) ++counts[static_cast<size_t>(SampleToken(logits, 1.0f, UniformForToken(7, i)))];
  EXPECT_NEAR(counts[0] / 20000.0, 0.0900, 0.01);
  EXPECT_NEAR(counts[1] / 20000.0, 0.2447, 0.01);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3] / 20000.0, 0.6652, 0.01);
}

TEST(SampleToken, LowTemperatureIsGreedy) {
  const std::vector<float> logits = {0.0f, 1.0f, 1.1f, -3.0f};
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(SampleToken(logits, 0.001f, UniformForToken(1, i)), 2);
}

}  // namespace
}  // namespace voxrt::engine
