// Text of JSON values; see the header.
#include "text/json_writer.h"

#include <fmt/format.h>

#include <cmath>

#include "text/code_points.h"

namespace voxrt::text {

std::string ToValidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint point = DecodeCodePoint(bytes.substr(at));
    if (point.valid) {
      out.append(bytes.substr(at, point.bytes));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += point.bytes;
  }
  return out;
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Separate();
  AppendQuoted(name);
  text_ += ':';
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view value) {
  Separate();
  AppendQuoted(ToValidUtf8(value));
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(double value) {
  if (!std::isfinite(value)) return Null();
  return Raw(fmt::format("{:.9g}", value));
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view value) {
  Separate();
  text_.append(value);
  need_comma_ = true;
  return *this;
}

void JsonWriter::Separate() {
  if (need_comma_) text_ += ',';
}

void JsonWriter::AppendQuoted(std::string_view value) {
  text_ += '"';
  for (const char c : value) {
    switch (c) {
      case '"':
        text_ += "\\\"";
        break;
      case '\\':
        text_ += "\\\\";
        break;
      case '\n':
        text_ += "\\n";
        break;
      case '\r':
        text_ += "\\r";
        break;
      case '\t':
        text_ += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          text_ += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          text_ += c;
        }
    }
  }
  text_ += '"';
}

}  // namespace voxrt::text
