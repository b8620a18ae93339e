// Cues, wrapping and time stamps; see the header.
//
// Time order. Times of segments are estimates on an 80 ms grid and may touch or even coincide. One cue is held back;
// when the next one does not begin after it, the border moves, and where there is no room for two cues they become one.
#include "text/subtitles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/code_points.h"

namespace voxrt::text {
namespace {

// A run of characters without a place to break, and whether a space stands before it.
struct Piece {
  std::string text;
  int columns = 0;
  bool space_before = false;
};

std::vector<Piece> SplitPieces(std::string_view text, int columns) {
  std::vector<Piece> pieces;
  bool begin = true;
  bool space = false;
  for (const Character& character : SplitCharacters(text)) {
    if (character.space) {
      begin = space = true;
      continue;
    }
    if (begin || pieces.back().columns + character.columns > columns) {
      pieces.push_back({.text = {}, .columns = 0, .space_before = space && !pieces.empty()});
      space = false;
    }
    pieces.back().text.append(character.text);
    pieces.back().columns += character.columns;
    begin = character.break_after;
  }
  return pieces;
}

// The characters that would end a cue early in subtitle files: a blank line cannot occur (white space is folded), "-->"
// must not.
std::string EscapeCue(std::string_view line, SubtitleFormat format) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line.substr(i, 3) == "-->") {
      out += "\xE2\x86\x92";  // an arrow
      i += 2;
    } else if (format == SubtitleFormat::kVtt && line[i] == '&') {
      out += "&amp;";
    } else if (format == SubtitleFormat::kVtt && line[i] == '<') {
      out += "&lt;";
    } else {
      out += line[i];
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> WrapText(std::string_view text, int columns) {
  std::vector<std::string> lines;
  int used = 0;
  for (const Piece& piece : SplitPieces(text, std::max(columns, 2))) {
    const int gap = piece.space_before ? 1 : 0;
    if (lines.empty() || used + gap + piece.columns > columns) {
      lines.push_back(piece.text);
      used = piece.columns;
    } else {
      if (gap != 0) lines.back() += ' ';
      lines.back() += piece.text;
      used += gap + piece.columns;
    }
  }
  return lines;
}

std::string FormatTimestamp(int64_t ms, SubtitleFormat format) {
  ms = std::max<int64_t>(ms, 0);
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60,
                     format == SubtitleFormat::kSrt ? ',' : '.', ms % 1000);
}

std::string SubtitleWriter::Header() const { return format_ == SubtitleFormat::kVtt ? "WEBVTT\n\n" : ""; }

// Cues of at most lines_per_cue lines. Their borders in time follow from the words where there are word times, else
// from the share of the text.
std::vector<SubtitleWriter::Cue> SubtitleWriter::Split(const Segment& segment) const {
  const std::vector<std::string> lines = WrapText(segment.text, options_.line_columns);
  const auto per_cue = static_cast<size_t>(std::max(options_.lines_per_cue, 1));
  // Balanced: 3 lines at 2 a cue are 2 + 1 cues, but never more cues than needed.
  const size_t cues = (lines.size() + per_cue - 1) / per_cue;
  std::vector<int64_t> word_end_bytes;  // bytes without white space up to the end of each word
  int64_t total_bytes = 0;
  for (const Word& word : segment.words) {
    total_bytes += std::count_if(word.text.begin(), word.text.end(), [](char c) { return c != ' '; });
    word_end_bytes.push_back(total_bytes);
  }
  int64_t text_bytes = 0;
  for (const std::string& line : lines)
    text_bytes += std::count_if(line.begin(), line.end(), [](char c) { return c != ' '; });

  // When `bytes` of the text have been said.
  const auto time_at = [&](int64_t bytes) {
    const auto found = std::find(word_end_bytes.begin(), word_end_bytes.end(), bytes);
    if (total_bytes == text_bytes && found != word_end_bytes.end()) {
      return segment.words[static_cast<size_t>(found - word_end_bytes.begin())].end_ms;
    }
    return segment.start_ms + (segment.end_ms - segment.start_ms) * bytes / std::max<int64_t>(text_bytes, 1);
  };

  std::vector<Cue> out;
  int64_t bytes = 0;
  int64_t start_ms = segment.start_ms;
  for (size_t cue = 0; cue < cues; ++cue) {
    std::string text;
    for (size_t line = cue * per_cue; line < std::min(lines.size(), (cue + 1) * per_cue); ++line) {
      if (!text.empty()) text += '\n';
      text += lines[line];
      bytes += std::count_if(lines[line].begin(), lines[line].end(), [](char c) { return c != ' '; });
    }
    const int64_t end_ms = cue + 1 == cues ? segment.end_ms : std::clamp(time_at(bytes), start_ms, segment.end_ms);
    out.push_back({start_ms, end_ms, std::move(text)});
    start_ms = end_ms;
  }
  return out;
}

std::string SubtitleWriter::Push(Cue cue) {
  if (cue.text.empty()) return {};
  if (!held_) {
    cue.start_ms = std::max(cue.start_ms, written_end_ms_);
    cue.end_ms = std::max(cue.end_ms, cue.start_ms);
    held_ = std::move(cue);
    return {};
  }
  cue.start_ms = std::max(cue.start_ms, held_->start_ms);
  cue.end_ms = std::max({cue.end_ms, cue.start_ms, held_->end_ms});
  // The border between the two: at least 1 ms for each.
  const int64_t border = std::min(std::max(cue.start_ms, held_->start_ms + 1), cue.end_ms - 1);
  if (border <= held_->start_ms) {
    held_->text += '\n' + cue.text;
    held_->end_ms = cue.end_ms;
    return {};
  }
  held_->end_ms = std::clamp(held_->end_ms, held_->start_ms + 1, border);
  cue.start_ms = border;
  std::string out = Format(*held_);
  held_ = std::move(cue);
  return out;
}

std::string SubtitleWriter::Format(const Cue& cue) {
  written_end_ms_ = cue.end_ms;
  std::string out = format_ == SubtitleFormat::kSrt ? fmt::format("{}\n", ++number_) : "";
  out += FormatTimestamp(cue.start_ms, format_) + " --> " + FormatTimestamp(cue.end_ms, format_) + '\n';
  return out + EscapeCue(cue.text, format_) + "\n\n";
}

std::string SubtitleWriter::Add(const Segment& segment) {
  std::string out;
  for (Cue& cue : Split(segment)) out += Push(std::move(cue));
  return out;
}

std::string SubtitleWriter::Finish(int64_t duration_ms) {
  if (!held_) return {};
  Cue cue = *std::exchange(held_, std::nullopt);
  // The end of the audio bounds the cue; one that began too late begins earlier, where the cue before leaves room.
  cue.end_ms = std::min(std::max(cue.end_ms, cue.start_ms + 1), std::max(duration_ms, written_end_ms_ + 1));
  cue.start_ms = std::max(std::min(cue.start_ms, cue.end_ms - 1), written_end_ms_);
  return Format(cue);
}

}  // namespace voxrt::text
