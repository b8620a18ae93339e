// Word error rate as this project counts it: lower case, everything but letters, digits, apostrophe and space removed,
// then the smallest number of substituted, inserted and missing words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace voxrt::text {

// Words of a text under the rule. Bytes of characters beyond ASCII are kept as they are.
std::vector<std::string> NormalisedWords(std::string_view text);

int WordErrors(const std::vector<std::string>& reference, const std::vector<std::string>& heard);

}  // namespace voxrt::text
