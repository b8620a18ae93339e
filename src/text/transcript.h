// Transcript: words and segments with times, built from token events as they come (docs/model.md 3, docs/server.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace voxrt::text {

struct Word {
  std::string text;      // trimmed
  int64_t start_ms = 0;  // estimate: the model gives no starts
  int64_t end_ms = 0;    // from the word's marker where it has one
};

struct Segment {     // a sentence: ends at . ! ? (and their CJK forms), at >= 800 ms of blanks, or at 30 s
  std::string text;  // trimmed
  int64_t start_ms = 0;
  int64_t end_ms = 0;
  std::vector<Word> words;
};

class TranscriptBuilder {
 public:
  // One generated token in order: its text (may be empty), whether it is a word marker, the end of its frame.
  void Add(std::string_view text, bool word_mark, int64_t end_ms);
  // Ends the transcript; times are clamped to [0, duration_ms] and strictly ordered.
  void Finish(int64_t duration_ms);
  // Segments completed since the last call (moved out), for streaming output.
  std::vector<Segment> TakeSegments();
  // Exact concatenation of all text, untrimmed.
  const std::string& text() const { return text_; }

 private:
  // Words that were announced by one marker (or one word without any), not yet timed.
  struct GroupWord {
    std::string raw;            // with its leading space
    int64_t first_text_ms = 0;  // frames of its first and last token
    int64_t last_text_ms = 0;
  };

  void AddText(std::string_view text, int64_t end_ms);
  void Append(std::string_view character, bool starts_word, int64_t end_ms);
  bool ContinuesWord(std::string_view text) const;
  void CloseGroup();
  void PlaceWord(const GroupWord& word, int64_t start_ms, int64_t end_ms);
  void CloseSegment();

  std::string text_;
  std::vector<GroupWord> group_;
  int64_t group_mark_ms_ = -1;  // end of the group's marker; -1 = it has none
  int64_t mark_ms_ = -1;        // end of a marker whose text has not come yet
  int64_t last_text_ms_ = 0;    // frame of the last token with text
  int64_t active_ms_ = 0;       // frame of the last token that was no blank
  int64_t last_end_ms_ = 0;     // end of the last word given a time
  Segment segment_;             // its texts are raw until it is closed
  std::vector<Segment> done_;
};

// Leading and trailing ASCII white space removed.
std::string Trim(std::string_view text);

}  // namespace voxrt::text
