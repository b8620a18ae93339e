#include "server/http/uri.h"

namespace voxrt::server {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

const std::string* Uri::Query(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const bool complete = i + 2 < text.size();
      const int high = complete ? HexValue(text[i + 1]) : -1;
      const int low = complete ? HexValue(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return std::nullopt;
    out += c;
  }
  return out;
}

std::optional<Uri> ParseUri(std::string_view target) {
  if (target.empty() || target[0] != '/') return std::nullopt;
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  Uri uri;
  std::optional<std::string> path = PercentDecode(target.substr(0, mark), false);
  if (!path) return std::nullopt;
  uri.path = *std::move(path);
  std::string_view rest = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::optional<std::string> key = PercentDecode(pair.substr(0, equals), true);
    std::optional<std::string> value =
        PercentDecode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!key || !value) return std::nullopt;
    uri.query.emplace_back(*std::move(key), *std::move(value));
  }
  return uri;
}

}  // namespace voxrt::server
