// Subtitles: segments in, SubRip (.srt) or WebVTT (.vtt) text out, as soon as a cue is final. Cues are strictly
// increasing, never overlap, never reach past the audio's end; lines are wrapped by columns and never cut inside a
// character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/transcript.h"

namespace voxrt::text {

enum class SubtitleFormat : uint8_t { kSrt, kVtt };

struct SubtitleOptions {
  int line_columns = 42;  // longest line; a wide (East Asian) character counts 2
  int lines_per_cue = 2;  // longer segments become several cues, split between words
};

// Breaks `text` into lines of at most `columns`, at spaces or between characters of scripts without spaces; a longer
// word is cut between characters. Inner white space becomes one space.
std::vector<std::string> WrapText(std::string_view text, int columns);

// "01:02:03,004" (srt) or "01:02:03.004" (vtt); hours grow beyond two digits where needed.
std::string FormatTimestamp(int64_t ms, SubtitleFormat format);

class SubtitleWriter {
 public:
  explicit SubtitleWriter(SubtitleFormat format, const SubtitleOptions& options = {})
      : format_(format), options_(options) {}

  // What the file begins with; written before anything else ("WEBVTT" or nothing).
  std::string Header() const;
  // Text of the cues that became final. The last one is held back until the next is known.
  std::string Add(const Segment& segment);
  // Text of the rest; no cue ends after `duration_ms`.
  std::string Finish(int64_t duration_ms);

 private:
  struct Cue {
    int64_t start_ms = 0;
    int64_t end_ms = 0;
    std::string text;
  };

  std::vector<Cue> Split(const Segment& segment) const;
  std::string Push(Cue cue);
  std::string Format(const Cue& cue);

  SubtitleFormat format_;
  SubtitleOptions options_;
  std::optional<Cue> held_;
  int64_t written_end_ms_ = 0;  // end of the last cue that was formatted
  int64_t number_ = 0;
};

}  // namespace voxrt::text
