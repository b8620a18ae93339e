// Code points and their look: decoding of UTF-8 one code point at a time, columns on screen, and where a line must not
// be cut. The tables are small on purpose: they keep letters with their marks and emoji sequences together; they are
// not all of Unicode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace voxrt::text {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;    // consumed; 1 where invalid
  bool valid = false;  // shortest form, no surrogate, at most U+10FFFF
};

// The first code point of `bytes`, which must not be empty.
CodePoint DecodeCodePoint(std::string_view bytes);

// A user-perceived character: a code point with what belongs to it (combining marks, joined emoji, flag pairs).
struct Character {
  std::string_view text;
  int columns = 1;  // 2 for East Asian wide characters and emoji, 0 for control characters
  bool space = false;
  bool break_after = false;  // a line may end after it although no space follows (CJK)
};

// Splits UTF-8 text; invalid bytes are characters of their own.
std::vector<Character> SplitCharacters(std::string_view text);

// Sum of the columns of all characters.
int Columns(std::string_view text);

}  // namespace voxrt::text
