#include "text/word_error.h"

#include <algorithm>

namespace voxrt::text {

std::vector<std::string> NormalisedWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto close = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      close();
    } else if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '\'' || static_cast<unsigned char>(c) >= 0x80) {
      word += c;
    }
  }
  close();
  return words;
}

int WordErrors(const std::vector<std::string>& reference, const std::vector<std::string>& heard) {
  // Edit distance, one row at a time.
  std::vector<int> row(heard.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 0; i < reference.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < heard.size(); ++j) {
      const int substituted = diagonal + (reference[i] == heard[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j + 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace voxrt::text
