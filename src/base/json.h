// Json: a JSON value, and the only way the project reads and writes JSON. Reading goes through nlohmann-json's parser
// behind limits on size, depth and number of values; duplicate keys and invalid UTF-8 are refused with their byte
// offset; nothing throws. It is no general document model: integers are 64-bit signed, objects keep the order of their
// text.
//
//   Result<Json> parsed = ParseJson(R"({"rate": 16000})");
//   std::optional<int64_t> rate = parsed->Find("rate")->AsInt();
//   std::string line = Json::MakeObject({{"type", "delta"}, {"text", text}}).Dump();
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"

namespace voxrt::base {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 64;
  size_t max_values = 4'000'000;  // of the whole text, containers included
};

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the text or of insertion; keys are unique

  Json() = default;  // null
  // Implicit on purpose: values are written as literals inside MakeObject.
  Json(std::nullptr_t) {}                                       // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                         // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT(google-explicit-constructor)
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}               // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}                           // NOLINT(google-explicit-constructor)
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>)
      Json(T value) {  // NOLINT(google-explicit-constructor): see above
    if (std::in_range<int64_t>(value)) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<double>(value);
    }
  }
  static Json MakeObject(std::initializer_list<Member> members = {}) { return Json(Object(members)); }
  static Json MakeArray(std::initializer_list<Json> elements = {}) { return Json(Array(elements)); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "an object", "a string", "null", ...: for messages.
  const char* TypeName() const;

  // Empty or null when the value is of another type. Integers are also doubles, not the reverse.
  std::optional<bool> AsBool() const;
  std::optional<int64_t> AsInt() const;
  std::optional<double> AsDouble() const;
  const std::string* AsString() const { return std::get_if<std::string>(&value_); }
  const Array* AsArray() const { return std::get_if<Array>(&value_); }
  const Object* AsObject() const { return std::get_if<Object>(&value_); }
  Array* AsArray() { return std::get_if<Array>(&value_); }
  Object* AsObject() { return std::get_if<Object>(&value_); }

  // The member of an object, or null (also when this is no object).
  const Json* Find(std::string_view key) const;

  // Writing. A null value becomes an object or an array at its first member or element.
  Json& operator[](std::string_view key);
  void Append(Json element);

  // One line without spaces, or indented by `indent` >= 0 spaces a level. Always valid JSON: bytes that are no UTF-8
  // become U+FFFD, NaN and infinities null. Doubles read back as the same value.
  std::string Dump(int indent = -1) const;

  bool operator==(const Json&) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// kInvalidArgument, "not valid JSON at byte 17: ..." when the text is damaged or exceeds a limit.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Same, but the elements of the array `text[key]` are handed to `element` one by one and not stored (the array is empty
// in the result): a long list costs no memory. An error of `element` ends the parsing and is returned.
Result<Json> ParseJsonStreaming(std::string_view text, const JsonLimits& limits, std::string_view key,
                                FunctionRef<Status(size_t index, const Json& value)> element);

// Outside text for a message: in quotes, escaped to one line, shortened.
std::string QuoteForMessage(std::string_view text);

}  // namespace voxrt::base
