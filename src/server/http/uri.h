// Request targets: path and query, percent-decoded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace voxrt::server {

struct Uri {
  std::string path;                                        // decoded; begins with '/'
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order

  const std::string* Query(std::string_view name) const;
};

// nullopt when the target does not begin with '/' or holds a broken escape or a control character.
std::optional<Uri> ParseUri(std::string_view target);
// "%41+b" -> "A b" with plus_is_space.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space);

}  // namespace voxrt::server
