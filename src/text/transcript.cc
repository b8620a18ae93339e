// How tokens become words. A marker [STREAMING_WORD] tells when a group of words has ended; their text follows it:
//
//   token   PAD PAD W  " of" " the" PAD  W  " hou" "se" PAD "." PAD ...
//   frame    1   2   3   4      5    6    7     8     9   10  11
//                    ^ "of the" ended here    ^ "house." ended here
//
// The last word of a group ends at its marker; the words before it share the time since the group's estimated start by
// length. A word starts at white space, at a marker, and after a full stop of scripts without spaces. Starts are
// estimates from usual speaking rates, never before the end of the previous word.
#include "text/transcript.h"

#include <algorithm>

#include "text/code_points.h"

namespace voxrt::text {
namespace {

constexpr int64_t kFrameMs = 80;
constexpr int64_t kPauseMs = 800;
constexpr int64_t kMaxSegmentMs = 30'000;
// Usual time of a written character: alphabets, and scripts that write a syllable with one.
constexpr int64_t kLetterMs = 70;
constexpr int64_t kSyllableMs = 170;

bool IsSpace(uint32_t value) { return value == ' ' || (value >= 9 && value <= 13) || value == 0x3000 || value == 0xa0; }

// Chinese, Japanese, Thai, Lao, Khmer, Burmese: words are not separated by spaces.
bool WrittenWithoutSpaces(uint32_t value) {
  return (value >= 0x2e80 && value <= 0x31ff) || (value >= 0x3400 && value <= 0x9fff) ||
         (value >= 0xf900 && value <= 0xfaff) || (value >= 0xff00 && value <= 0xff9f) ||
         (value >= 0x20000 && value <= 0x3fffd) || (value >= 0x0e00 && value <= 0x0eff) ||
         (value >= 0x1000 && value <= 0x109f) || (value >= 0x1780 && value <= 0x17ff);
}

bool IsWideStop(uint32_t value) {  // ends a sentence without a space after it
  return value == 0x3002 || value == 0xff01 || value == 0xff1f || value == 0xff0e || value == 0xff61;
}

bool IsStop(uint32_t value) {
  return value == '.' || value == '!' || value == '?' || value == 0x2026 /* ... */ || value == 0x0964 /* danda */ ||
         value == 0x06d4 || value == 0x061f /* Arabic */ || IsWideStop(value);
}

bool IsCloser(uint32_t value) {  // may follow a stop: quotes and brackets
  return value == '"' || value == '\'' || value == ')' || value == ']' || value == '}' || value == 0xbb ||
         value == 0x2019 || value == 0x201d || value == 0x300d || value == 0x300f || value == 0x3011 || value == 0xff09;
}

// Punctuation that belongs to the word before it.
bool IsPunctuation(uint32_t value) {
  if (value < 0x80)
    return value > ' ' && !((value | 32) >= 'a' && (value | 32) <= 'z') && !(value >= '0' && value <= '9');
  return IsStop(value) || IsCloser(value) || value == 0x2013 || value == 0x2014 || value == 0x3001 || value == 0xff0c ||
         value == 0xab || value == 0xbf || value == 0xa1;
}

// Calls visit(code point, its bytes) for each code point of `text`.
template <typename Visit>
void ForEachCodePoint(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const CodePoint point = DecodeCodePoint(text);
    visit(point.value, text.substr(0, point.bytes));
    text.remove_prefix(point.bytes);
  }
}

// The last code point of valid UTF-8; 0 when empty.
uint32_t LastCodePoint(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && (static_cast<unsigned char>(text[at - 1]) & 0xc0u) == 0x80u) --at;
  return at == 0 ? 0 : DecodeCodePoint(text.substr(at - 1)).value;
}

bool IsOnlyPunctuation(std::string_view text) {
  bool only = true;
  ForEachCodePoint(text,
                   [&](uint32_t value, std::string_view) { only = only && (IsSpace(value) || IsPunctuation(value)); });
  return only;
}

// Whether the text ends with a stop, quotes and brackets after it not counted; `wide`: one that needs no space after
// it.
bool EndsSentence(std::string_view text, bool wide_only) {
  bool ends = false;
  ForEachCodePoint(text, [&](uint32_t value, std::string_view) {
    if (wide_only ? IsWideStop(value) : IsStop(value)) {
      ends = true;
    } else if (!IsCloser(value) && !IsSpace(value)) {
      ends = false;
    }
  });
  return ends;
}

int64_t EstimateMs(std::string_view word) {
  int64_t ms = kFrameMs;
  ForEachCodePoint(word, [&](uint32_t value, std::string_view) {
    if (!IsSpace(value) && !IsPunctuation(value)) ms += WrittenWithoutSpaces(value) ? kSyllableMs : kLetterMs;
  });
  return ms;
}

void TrimSegment(Segment* segment) {
  segment->text = Trim(segment->text);
  for (Word& word : segment->words) word.text = Trim(word.text);
}

}  // namespace

std::string Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\v\f");
  if (first == text.npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n\v\f") - first + 1));
}

void TranscriptBuilder::Add(std::string_view text, bool word_mark, int64_t end_ms) {
  if (word_mark) {
    mark_ms_ = end_ms;
    active_ms_ = end_ms;
  }
  if (!text.empty()) {
    AddText(text, end_ms);
    active_ms_ = end_ms;
  } else if (!word_mark && mark_ms_ < 0 && end_ms - active_ms_ >= kPauseMs) {
    CloseGroup();
    CloseSegment();
  }
}

// A marker inside a word of a script with spaces is a later end of that word, not a new one.
bool TranscriptBuilder::ContinuesWord(std::string_view text) const {
  if (group_.empty()) return false;
  const uint32_t next = DecodeCodePoint(text).value;
  const uint32_t before = LastCodePoint(text_);
  return !IsSpace(next) && !IsSpace(before) && !WrittenWithoutSpaces(next) && !WrittenWithoutSpaces(before);
}

void TranscriptBuilder::AddText(std::string_view text, int64_t end_ms) {
  // Text without spaces, markers and stops must not make an endless word.
  if (!group_.empty() && end_ms - group_.front().first_text_ms >= kMaxSegmentMs) CloseGroup();
  bool starts_word = group_.empty();
  if (mark_ms_ >= 0) {
    if (!ContinuesWord(text)) {
      CloseGroup();
      starts_word = true;
    }
    group_mark_ms_ = mark_ms_;
    mark_ms_ = -1;
  } else if (end_ms - last_text_ms_ > kFrameMs && IsSpace(DecodeCodePoint(text).value)) {
    CloseGroup();  // blanks lie between: not announced by the same marker
    starts_word = true;
  }
  ForEachCodePoint(text, [&](uint32_t value, std::string_view character) {
    const bool after_space =
        !group_.empty() && IsSpace(LastCodePoint(group_.back().raw)) && !Trim(group_.back().raw).empty();
    const bool begins = IsSpace(value) ? !group_.empty() && !IsSpace(LastCodePoint(group_.back().raw)) : after_space;
    const bool after_stop =
        !group_.empty() && EndsSentence(group_.back().raw, true) && !IsCloser(value) && !IsStop(value);
    Append(character, starts_word || begins || after_stop, end_ms);
    starts_word = false;
  });
  text_ += text;
  last_text_ms_ = end_ms;
}

void TranscriptBuilder::Append(std::string_view character, bool starts_word, int64_t end_ms) {
  if (starts_word || group_.empty()) {
    // A word without a marker is a group of its own.
    if (!group_.empty() && group_mark_ms_ < 0) CloseGroup();
    group_.push_back({"", end_ms, end_ms});
  }
  GroupWord& word = group_.back();
  word.raw += character;
  if (!IsOnlyPunctuation(character)) word.last_text_ms = end_ms;
}

void TranscriptBuilder::CloseGroup() {
  if (group_.empty()) return;
  const auto count = static_cast<int64_t>(group_.size());
  std::vector<int64_t> estimates;
  int64_t total = 0;
  for (const GroupWord& word : group_) {
    estimates.push_back(EstimateMs(word.raw));
    total += estimates.back();
  }
  const int64_t marked = group_mark_ms_ >= 0 ? group_mark_ms_ : group_.back().last_text_ms;
  const int64_t end = std::max(marked, last_end_ms_ + count);  // at least 1 ms a word
  const int64_t begin = std::max(last_end_ms_, end - total);
  int64_t before = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t start = std::max(begin + (end - begin) * before / total, last_end_ms_);
    before += estimates[at];
    const int64_t word_end = std::max(begin + (end - begin) * before / total, start + 1);
    PlaceWord(group_[at], start, std::min(word_end, end - (count - 1 - i)));
  }
  group_.clear();
  group_mark_ms_ = -1;
}

void TranscriptBuilder::PlaceWord(const GroupWord& word, int64_t start_ms, int64_t end_ms) {
  if (IsOnlyPunctuation(word.raw)) {
    // Belongs to the word before it, which may already be given out: then only the exact text has it.
    Segment* owner = !segment_.words.empty() ? &segment_ : !done_.empty() ? &done_.back() : nullptr;
    if (owner == nullptr) return;
    owner->text += word.raw;
    owner->words.back().text += word.raw;
    if (owner != &segment_) {
      TrimSegment(owner);
    } else if (EndsSentence(segment_.text, false)) {
      CloseSegment();
    }
    return;
  }
  if (!segment_.words.empty() && end_ms - segment_.start_ms > kMaxSegmentMs) CloseSegment();
  if (segment_.words.empty()) segment_.start_ms = start_ms;
  segment_.words.push_back({word.raw, start_ms, end_ms});  // trimmed with the segment
  segment_.text += word.raw;
  last_end_ms_ = end_ms;
  if (EndsSentence(segment_.text, false)) CloseSegment();
}

void TranscriptBuilder::CloseSegment() {
  if (segment_.words.empty()) return;
  TrimSegment(&segment_);
  segment_.end_ms = segment_.words.back().end_ms;
  done_.push_back(std::move(segment_));
  segment_ = Segment();
}

void TranscriptBuilder::Finish(int64_t duration_ms) {
  CloseGroup();
  CloseSegment();
  int64_t limit = std::max<int64_t>(0, duration_ms);
  for (auto segment = done_.rbegin(); segment != done_.rend(); ++segment) {
    for (auto word = segment->words.rbegin(); word != segment->words.rend(); ++word) {
      word->end_ms = std::clamp<int64_t>(word->end_ms, 0, limit);
      if (word->start_ms >= word->end_ms) word->start_ms = std::max<int64_t>(0, word->end_ms - 1);
      limit = word->start_ms;
    }
    segment->start_ms = segment->words.front().start_ms;
    segment->end_ms = segment->words.back().end_ms;
  }
}

std::vector<Segment> TranscriptBuilder::TakeSegments() {
  std::vector<Segment> taken = std::move(done_);
  done_.clear();
  return taken;
}

}  // namespace voxrt::text
