// Clips with known texts through an engine: word errors and token counts per clip. For `voxrt export --eval` and
// tools/eval.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace voxrt::engine {

struct EvalClip {
  std::string file;
  std::string text;
  std::vector<float> samples;  // 16 kHz mono
};

// DIR/clips.json ([{"file", "text", ...}]) and the files it names.
Result<std::vector<EvalClip>> LoadClips(const std::string& directory);

struct ClipScore {
  int words = 0;  // of the text
  int errors = 0;
  int64_t tokens = 0;
  int64_t pads = 0;
  std::string heard;
};

// All clips, several at a time; greedy. Not ok on the first stream that fails, kCancelled when `cancelled` turns true.
Result<std::vector<ClipScore>> ScoreClips(Engine& engine, const std::vector<EvalClip>& clips, int delay_ms,
                                          const std::function<bool()>& cancelled);

struct ScoreSum {
  int64_t words = 0;
  int64_t errors = 0;
  int64_t tokens = 0;
  int64_t pads = 0;
  double word_error_rate() const { return words > 0 ? static_cast<double>(errors) / static_cast<double>(words) : 0.0; }
};
ScoreSum Sum(const std::vector<ClipScore>& scores);

}  // namespace voxrt::engine
