// Decoding, widths and character borders; see the header.
#include "text/code_points.h"

#include <algorithm>
#include <array>

namespace voxrt::text {
namespace {

struct Range {
  uint32_t first, last;
};

bool InRanges(uint32_t value, const auto& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [value](Range r) { return value >= r.first && value <= r.last; });
}

// Marks that attach to the code point before them: combining diacritics, Hebrew and Arabic points, Indic and Thai vowel
// signs, Japanese voicing marks, variation selectors, emoji skin tones, tags.
constexpr std::array<Range, 31> kAttached = {
    {{0x0300, 0x036f},  {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x05bf, 0x05c7}, {0x0610, 0x061a}, {0x064b, 0x065f},
     {0x0670, 0x0670},  {0x06d6, 0x06ed}, {0x0900, 0x0903}, {0x093a, 0x094f}, {0x0951, 0x0957}, {0x0981, 0x0983},
     {0x09bc, 0x09cd},  {0x0a01, 0x0a03}, {0x0a3c, 0x0a4d}, {0x0abc, 0x0acd}, {0x0b3c, 0x0b4d}, {0x0bbe, 0x0bcd},
     {0x0c3e, 0x0c4d},  {0x0cbc, 0x0ccd}, {0x0d3e, 0x0d4d}, {0x0e31, 0x0e31}, {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e},
     {0x1ab0, 0x1aff},  {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0x3099, 0x309a}, {0xfe00, 0xfe0f}, {0x1f3fb, 0x1f3ff},
     {0xe0020, 0xe007f}}};
constexpr std::array<Range, 9> kWide = {{{0x1100, 0x115f},
                                         {0x2e80, 0x303e},
                                         {0x3041, 0xa4cf},
                                         {0xac00, 0xd7a3},
                                         {0xf900, 0xfaff},
                                         {0xfe30, 0xfe6f},
                                         {0xff00, 0xff60},
                                         {0x1f300, 0x1faff},
                                         {0x20000, 0x3fffd}}};
// Scripts written without spaces; Hangul is not among them.
constexpr std::array<Range, 5> kBreakAnywhere = {
    {{0x2e80, 0x31ff}, {0x3400, 0x9fff}, {0xf900, 0xfaff}, {0xff00, 0xff60}, {0x20000, 0x3fffd}}};
// Closing punctuation and small kana never begin a line.
constexpr std::array<uint32_t, 14> kNoLineStart = {0x3001, 0x3002, 0x300d, 0x300f, 0x3011, 0xff01, 0xff09,
                                                   0xff0c, 0xff0e, 0xff1a, 0xff1b, 0xff1f, 0x30fc, 0x3063};
constexpr uint32_t kJoiner = 0x200d;

bool IsFlagLetter(uint32_t value) { return value >= 0x1f1e6 && value <= 0x1f1ff; }
bool IsSpace(uint32_t value) { return value == ' ' || (value >= '\t' && value <= '\r') || value == 0x3000; }

int ColumnsOf(uint32_t value) {
  if (value < 0x20 || (value >= 0x7f && value < 0xa0) || value == 0x200b || InRanges(value, kAttached)) return 0;
  return InRanges(value, kWide) || IsFlagLetter(value) ? 2 : 1;
}

}  // namespace

CodePoint DecodeCodePoint(std::string_view bytes) {
  const auto byte = [bytes](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t length = lead >= 0xf0 && lead <= 0xf4  ? 4
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                                                      : 0;
  if (length == 0 || bytes.size() < length) return {0xfffd, 1, false};
  uint32_t value = lead & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {0xfffd, 1, false};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {0xfffd, 1, false};
  return {value, length, true};
}

std::vector<Character> SplitCharacters(std::string_view text) {
  std::vector<Character> characters;
  bool join_next = false;  // the character before ends in a joiner
  int flag_letters = 0;    // regional indicators in a row, which pair up
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeCodePoint(text.substr(at));
    const bool second_flag_letter = IsFlagLetter(point.value) && flag_letters % 2 == 1;
    const bool attached =
        !characters.empty() && !characters.back().space &&
        (join_next || point.value == kJoiner || second_flag_letter || InRanges(point.value, kAttached));
    if (attached) {
      Character& last = characters.back();
      last.text = std::string_view(last.text.data(), last.text.size() + point.bytes);
    } else {
      if (!characters.empty() &&
          std::find(kNoLineStart.begin(), kNoLineStart.end(), point.value) != kNoLineStart.end()) {
        characters.back().break_after = false;
      }
      characters.push_back({text.substr(at, point.bytes), ColumnsOf(point.value), IsSpace(point.value),
                            InRanges(point.value, kBreakAnywhere)});
    }
    join_next = point.value == kJoiner;
    flag_letters = IsFlagLetter(point.value) ? flag_letters + 1 : 0;
    at += point.bytes;
  }
  return characters;
}

int Columns(std::string_view text) {
  int columns = 0;
  for (const Character& character : SplitCharacters(text)) columns += character.columns;
  return columns;
}

}  // namespace voxrt::text
