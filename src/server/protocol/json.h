// JSON as the server reads and writes it: input with a depth limit and checked UTF-8, output always valid UTF-8. No
// exceptions leave.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace voxrt::server {

using Json = nlohmann::ordered_json;

// One JSON value and nothing after it, nested at most `max_depth` deep and with at most `max_members` members of
// objects (they keep their order: each costs a look at all before it); nullopt otherwise. Of duplicate keys the last
// one counts.
std::optional<Json> ParseJson(std::string_view text, int max_depth = 32, int max_members = 512);

// Compact text; bytes that are not UTF-8 become U+FFFD.
std::string Dump(const Json& value);

// What a client sent, to be quoted in a message: valid UTF-8 of at most `max_bytes`.
std::string Excerpt(std::string_view text, size_t max_bytes = 200);

// The string as it stands between the quotes of a JSON string.
std::string JsonEscape(std::string_view text);

// Member access that never throws: nullptr when `object` is no object or has no such key.
const Json* Member(const Json& object, std::string_view key);
// The string member, or nullopt when it is absent or of another type.
std::optional<std::string> StringMember(const Json& object, std::string_view key);

}  // namespace voxrt::server
