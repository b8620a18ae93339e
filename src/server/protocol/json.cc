// Depth and members are counted before parsing, over the raw text: nlohmann's parser builds values while it reads, and
// a limit inside its callback would cost a call per value of every audio message.
#include "server/protocol/json.h"

#include "text/code_points.h"

namespace voxrt::server {
namespace {

bool WithinLimits(std::string_view text, int max_depth, int max_members) {
  int depth = 0, members = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && ++members > max_members) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Json> ParseJson(std::string_view text, int max_depth, int max_members) {
  if (!WithinLimits(text, max_depth, max_members)) return std::nullopt;
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return std::nullopt;
  return value;
}

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string Excerpt(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kMore = "...";
  const size_t limit = text.size() <= max_bytes ? max_bytes : max_bytes - kMore.size();
  std::string out;
  while (!text.empty()) {
    const text::CodePoint point = text::DecodeCodePoint(text);
    if (out.size() + point.bytes > limit) return out.append(kMore);
    out += point.valid ? text.substr(0, point.bytes) : std::string_view("?");
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string JsonEscape(std::string_view text) {
  const std::string quoted = Dump(Json(std::string(text)));
  return quoted.substr(1, quoted.size() - 2);
}

const Json* Member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

std::optional<std::string> StringMember(const Json& object, std::string_view key) {
  const Json* member = Member(object, key);
  if (member == nullptr || !member->is_string()) return std::nullopt;
  return member->get<std::string>();
}

}  // namespace voxrt::server
