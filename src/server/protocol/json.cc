// Depth is counted before parsing, over the raw text: nlohmann's parser builds values while it reads, and a limit
// inside its callback would cost a call per value of every audio message.
#include "server/protocol/json.h"

namespace voxrt::server {
namespace {

bool WithinDepth(std::string_view text, int max_depth) {
  int depth = 0;
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
    }
  }
  return true;
}

}  // namespace

std::optional<Json> ParseJson(std::string_view text, int max_depth) {
  if (!WithinDepth(text, max_depth)) return std::nullopt;
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return std::nullopt;
  return value;
}

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

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
