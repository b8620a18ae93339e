#include "engine/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "audio/source.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "text/word_error.h"

namespace voxrt::engine {
namespace {

constexpr size_t kMaxListBytes = size_t{64} << 20;
constexpr size_t kMaxClipSamples = size_t{16000} * 110;  // below the session's pending limit: feeding never waits
constexpr size_t kStreams = 8;
constexpr auto kWait = std::chrono::milliseconds(200);

Result<std::vector<float>> ReadSamples(const std::string& path) {
  VOXRT_ASSIGN_OR_RETURN(auto source, audio::OpenFile(path, {}));
  std::vector<float> samples;
  std::vector<float> block(16000);
  for (;;) {
    VOXRT_ASSIGN_OR_RETURN(const size_t count, source->Read(block));
    if (count == 0) return samples;
    samples.insert(samples.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
    if (samples.size() > kMaxClipSamples) {
      return Status(StatusCode::kInvalidAudio, fmt::format("{} is longer than {} s; evaluation clips are sentences",
                                                           path, kMaxClipSamples / 16000));
    }
  }
}

// Adds a stream's events to its score; true when it has finished.
Result<bool> Collect(Session& session, int32_t pad, ClipScore* score) {
  std::vector<Event> events;
  session.Wait(&events, kWait);
  for (const Event& event : events) {
    if (event.type == EventType::kError) return event.status;
    if (event.type == EventType::kFinished) return true;
    if (event.type != EventType::kToken) continue;
    ++score->tokens;
    score->pads += event.token == pad ? 1 : 0;
    score->heard += event.text;
  }
  return false;
}

}  // namespace

Result<std::vector<EvalClip>> LoadClips(const std::string& directory) {
  const std::string list = directory + "/clips.json";
  VOXRT_ASSIGN_OR_RETURN(const std::string text, base::ReadSmallFile(list, kMaxListBytes));
  Result<base::Json> json = base::ParseJson(text);
  if (!json.ok()) return Status(StatusCode::kInvalidArgument, fmt::format("{}: {}", list, json.status().message()));
  const base::Json::Array* entries = json->AsArray();
  if (entries == nullptr || entries->empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} holds no clips; expected [{{\"file\": ..., \"text\": ...}}, ...]", list));
  }
  std::vector<EvalClip> clips;
  for (const base::Json& entry : *entries) {
    const base::Json* file = entry.Find("file");
    const base::Json* words = entry.Find("text");
    if (file == nullptr || file->AsString() == nullptr || words == nullptr || words->AsString() == nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}: entry {} has no \"file\" or no \"text\"", list, clips.size()));
    }
    VOXRT_ASSIGN_OR_RETURN(auto samples, ReadSamples(directory + "/" + *file->AsString()));
    clips.push_back({*file->AsString(), *words->AsString(), std::move(samples)});
  }
  return clips;
}

Result<std::vector<ClipScore>> ScoreClips(Engine& engine, const std::vector<EvalClip>& clips, int delay_ms,
                                          const std::function<bool()>& cancelled) {
  SessionOptions options;
  options.delay_ms = delay_ms;
  options.all_tokens = true;
  options.live = false;
  options.rut_seconds = 0.0;
  std::vector<ClipScore> scores(clips.size());
  for (size_t first = 0; first < clips.size(); first += kStreams) {
    const size_t end = std::min(clips.size(), first + kStreams);
    std::vector<std::unique_ptr<Session>> sessions;
    for (size_t i = first; i < end; ++i) {
      VOXRT_ASSIGN_OR_RETURN(auto session, engine.NewSession(options));
      VOXRT_RETURN_IF_ERROR(session->FeedAll(clips[i].samples));
      VOXRT_RETURN_IF_ERROR(session->Finish());
      sessions.push_back(std::move(session));
    }
    for (size_t i = first; i < end; ++i) {
      for (bool finished = false; !finished;) {
        if (cancelled && cancelled()) return Status(StatusCode::kCancelled, "cancelled");
        VOXRT_ASSIGN_OR_RETURN(finished, Collect(*sessions[i - first], engine.tekken().pad(), &scores[i]));
      }
      const std::vector<std::string> reference = text::NormalisedWords(clips[i].text);
      scores[i].words = static_cast<int>(reference.size());
      scores[i].errors = text::WordErrors(reference, text::NormalisedWords(scores[i].heard));
    }
  }
  return scores;
}

ScoreSum Sum(const std::vector<ClipScore>& scores) {
  ScoreSum sum;
  for (const ClipScore& score : scores) {
    sum.words += score.words;
    sum.errors += score.errors;
    sum.tokens += score.tokens;
    sum.pads += score.pads;
  }
  return sum;
}

}  // namespace voxrt::engine
