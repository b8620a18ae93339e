// Whole-signal helpers over engine sessions for tests: feed in some chunking, take every token.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace voxrt::testing {

struct Heard {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<int64_t> end_ms;
};

// Takes events until one of type `until`; an error fails the test.
inline void Take(engine::Session& session, engine::EventType until, Heard* heard) {
  std::vector<engine::Event> events;
  for (;;) {
    if (!session.Wait(&events, std::chrono::seconds(120))) {
      ADD_FAILURE() << "no event in time";
      return;
    }
    bool done = false;
    for (const engine::Event& event : events) {
      if (event.type == engine::EventType::kToken) {
        heard->tokens.push_back(event.token);
        heard->end_ms.push_back(event.end_ms);
      }
      heard->text += event.text;
      if (event.type == engine::EventType::kError) {
        ADD_FAILURE() << event.status.message();
        return;
      }
      done = done || event.type == until;
    }
    if (done) return;
  }
}

// `next_chunk` gives the size of each chunk in samples.
inline Heard Transcribe(engine::Engine& engine, std::span<const float> samples, engine::SessionOptions options,
                        const std::function<size_t()>& next_chunk) {
  options.all_tokens = true;
  Heard heard;
  auto session = engine.NewSession(options);
  if (!session.ok()) {
    ADD_FAILURE() << session.status().message();
    return heard;
  }
  for (size_t at = 0; at < samples.size();) {
    const size_t count = std::min(std::max<size_t>(next_chunk(), 1), samples.size() - at);
    EXPECT_TRUE((*session)->FeedAll(samples.subspan(at, count)).ok());
    at += count;
  }
  EXPECT_TRUE((*session)->Finish().ok());
  Take(**session, engine::EventType::kFinished, &heard);
  return heard;
}

inline Heard Transcribe(engine::Engine& engine, std::span<const float> samples,
                        const engine::SessionOptions& options = {}) {
  return Transcribe(engine, samples, options, [&] { return samples.size(); });
}

}  // namespace voxrt::testing
