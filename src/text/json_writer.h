// JsonWriter: builds one JSON value as text on one line. Strings may hold any bytes: what is not valid UTF-8 becomes
// U+FFFD, so the result is always valid JSON. Writing only; reading is base/json.
//
//   JsonWriter json;
//   json.BeginObject().Field("type", "delta").Field("end_ms", 80).EndObject();
//   puts(json.text().c_str());
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace voxrt::text {

// `bytes` with every byte that does not belong to a valid UTF-8 sequence replaced by U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view name);

  JsonWriter& Value(std::string_view value);
  JsonWriter& Value(const char* value) { return Value(std::string_view(value)); }
  JsonWriter& Value(const std::string& value) { return Value(std::string_view(value)); }
  JsonWriter& Value(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Value(std::integral auto value) { return Raw(std::to_string(value)); }
  JsonWriter& Value(double value);  // infinities and NaN, which JSON lacks, become null
  JsonWriter& Null() { return Raw("null"); }

  template <typename T>
  JsonWriter& Field(std::string_view name, const T& value) {
    return Key(name).Value(value);
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Raw(std::string_view value);
  void Separate();
  void AppendQuoted(std::string_view value);

  std::string text_;
  bool need_comma_ = false;
};

}  // namespace voxrt::text
