// The parser is nlohmann-json's SAX interface filling our own values, so that limits act while parsing and not
// afterwards.
#include "base/json.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace voxrt::base {
namespace {

using Number = nlohmann::json;  // only its number types are named

// Iterates over the text and tells how far the lexer has read, which nlohmann's handler interface does not.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *read_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** read_;
};

struct Stream {  // what ParseJsonStreaming hands out
  std::string_view key;
  FunctionRef<Status(size_t, const Json&)> element;
};

// Receives the parser's events. Every function returns false to stop; the reason is then in `status_`.
class Builder {
 public:
  Builder(std::string_view text, const JsonLimits& limits, const Stream* stream)
      : read_(text.data()), text_(text), limits_(limits), stream_(stream) {}

  bool null() { return Add(Json()); }
  bool boolean(bool value) { return Add(Json(value)); }
  bool number_integer(Number::number_integer_t value) { return Add(Json(value)); }
  bool number_unsigned(Number::number_unsigned_t value) { return Add(Json(value)); }
  bool number_float(Number::number_float_t value, const std::string& /*text*/) { return Add(Json(value)); }
  bool string(std::string& value) { return Add(Json(std::move(value))); }
  bool binary(Number::binary_t& /*value*/) { return false; }
  bool start_object(size_t /*size*/) { return Open(Json::Object()); }
  bool start_array(size_t /*size*/) { return Open(Json::Array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& key) {
    Frame& frame = frames_.back();
    if (IsDuplicate(frame, key)) return Fail(fmt::format("duplicate key {}", QuoteForMessage(key)));
    frame.key = std::move(key);
    return true;
  }

  template <typename Exception>
  bool parse_error(size_t position, const std::string& /*token*/, const Exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while parsing value - unexpected
    // ...; last read: '...'": the last part repeats raw bytes of the text, which must not reach a message.
    std::string_view what = error.what();
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    if (const size_t end = what.find("; last read"); end != what.npos) what = what.substr(0, end);
    if (const size_t end = what.find(" - "); end != what.npos) what.remove_prefix(end + 3);
    const std::string_view out_of_range = "number overflow";
    if (what.starts_with(out_of_range)) what = out_of_range;  // repeats the digits
    status_ = Status(StatusCode::kInvalidArgument,
                     fmt::format("not valid JSON at byte {}: {}", position == 0 ? 0 : position - 1, what));
    return false;
  }

  Result<Json> Take() && {
    if (!status_.ok()) return std::move(status_);
    return std::move(root_);
  }

  const char* read_;  // one past the last character the lexer has taken

 private:
  struct Frame {
    Json value;
    std::string key;                                         // of the member being read
    std::unique_ptr<std::unordered_set<std::string>> known;  // keys, once there are too many to compare one by one
    size_t streamed = 0;
    bool streams = false;
  };

  static bool IsDuplicate(Frame& frame, const std::string& key) {
    constexpr size_t kLinear = 16;
    const Json::Object& members = *frame.value.AsObject();
    if (members.size() < kLinear) {
      for (const Json::Member& member : members) {
        if (member.first == key) return true;
      }
      return false;
    }
    if (frame.known == nullptr) {
      frame.known = std::make_unique<std::unordered_set<std::string>>();
      for (const Json::Member& member : members) frame.known->insert(member.first);
    }
    return !frame.known->insert(key).second;
  }

  bool Fail(std::string_view reason) {
    const auto offset = static_cast<size_t>(read_ - text_.data());
    status_ = Status(StatusCode::kInvalidArgument,
                     fmt::format("not valid JSON at byte {}: {}", offset == 0 ? 0 : offset - 1, reason));
    return false;
  }

  bool Count() {
    if (++values_ <= limits_.max_values) return true;
    return Fail(fmt::format("more than {} values", limits_.max_values));
  }

  bool Open(Json container) {
    if (!Count()) return false;
    if (frames_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return Fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    Frame frame;
    frame.streams = stream_ != nullptr && frames_.size() == 1 && frames_[0].value.is_object() && container.is_array() &&
                    frames_[0].key == stream_->key;
    if (Json::Object* members = container.AsObject()) members->reserve(4);  // most objects are small
    frame.value = std::move(container);
    frames_.push_back(std::move(frame));
    return true;
  }

  bool Close() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return Attach(std::move(value));
  }

  bool Add(Json value) { return Count() && Attach(std::move(value)); }

  bool Attach(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (frame.streams) {
      status_ = stream_->element(frame.streamed++, value);
      return status_.ok();
    }
    if (Json::Array* array = frame.value.AsArray()) {
      array->push_back(std::move(value));
    } else {
      frame.value.AsObject()->emplace_back(std::move(frame.key), std::move(value));
    }
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  const Stream* stream_;
  std::vector<Frame> frames_;
  Json root_;
  Status status_;
  size_t values_ = 0;
};

Result<Json> Parse(std::string_view text, const JsonLimits& limits, const Stream* stream) {
  if (text.size() > limits.max_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("JSON text of {} bytes exceeds the limit of {}", text.size(), limits.max_bytes));
  }
  if (text.empty()) return Status(StatusCode::kInvalidArgument, "not valid JSON at byte 0: the text is empty");
  Builder builder(text, limits, stream);
  const CountingIterator begin(text.data(), &builder.read_);
  const CountingIterator end(text.data() + text.size(), &builder.read_);
  (void)nlohmann::json::sax_parse(begin, end, &builder);  // a false result is in the builder's status
  return std::move(builder).Take();
}

// Length of the valid UTF-8 sequence at `at`, or 0.
size_t Utf8Length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned lead = byte(at);
  if (lead < 0x80u) return 1;
  if (lead >= 0xc2u && lead <= 0xdfu) return tail(at + 1) ? 2 : 0;
  if (lead >= 0xe0u && lead <= 0xefu) {
    const unsigned second = byte(at + 1);
    const bool allowed = !(lead == 0xe0u && second < 0xa0u) && !(lead == 0xedu && second > 0x9fu);
    return allowed && tail(at + 1) && tail(at + 2) ? 3 : 0;
  }
  if (lead >= 0xf0u && lead <= 0xf4u) {
    const unsigned second = byte(at + 1);
    const bool allowed = !(lead == 0xf0u && second < 0x90u) && !(lead == 0xf4u && second > 0x8fu);
    return allowed && tail(at + 1) && tail(at + 2) && tail(at + 3) ? 4 : 0;
  }
  return 0;
}

void DumpString(std::string_view text, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = Utf8Length(text, i);
    if (length == 0) {
      *out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20u || c == 0x7f) {
          *out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          out->append(text, i, length);
        }
    }
    i += length;
  }
  out->push_back('"');
}

void DumpDouble(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  VOXRT_CHECK(error == std::errc());
  const std::string_view digits(buffer.data(), static_cast<size_t>(end - buffer.data()));
  *out += digits;
  if (digits.find_first_of(".e") == digits.npos) *out += ".0";  // stays a double when read back
}

void DumpValue(const Json& value, int indent, int level, std::string* out) {
  const auto new_line = [&](int at) {
    if (indent < 0) return;
    out->push_back('\n');
    out->append(static_cast<size_t>(indent) * static_cast<size_t>(at), ' ');
  };
  if (const Json::Array* array = value.AsArray()) {
    out->push_back('[');
    for (const Json& element : *array) {
      if (&element != array->data()) out->push_back(',');
      new_line(level + 1);
      DumpValue(element, indent, level + 1, out);
    }
    if (!array->empty()) new_line(level);
    out->push_back(']');
  } else if (const Json::Object* object = value.AsObject()) {
    out->push_back('{');
    for (const Json::Member& member : *object) {
      if (&member != object->data()) out->push_back(',');
      new_line(level + 1);
      DumpString(member.first, out);
      *out += indent < 0 ? ":" : ": ";
      DumpValue(member.second, indent, level + 1, out);
    }
    if (!object->empty()) new_line(level);
    out->push_back('}');
  } else if (const std::string* text = value.AsString()) {
    DumpString(*text, out);
  } else if (const std::optional<int64_t> integer = value.AsInt()) {
    *out += std::to_string(*integer);
  } else if (const std::optional<double> number = value.AsDouble()) {
    DumpDouble(*number, out);
  } else if (const std::optional<bool> flag = value.AsBool()) {
    *out += *flag ? "true" : "false";
  } else {
    *out += "null";
  }
}

}  // namespace

const char* Json::TypeName() const {
  constexpr const char* kNames[] = {"null", "a boolean", "an integer", "a number", "a string", "an array", "an object"};
  return kNames[value_.index()];
}

std::optional<bool> Json::AsBool() const {
  const bool* value = std::get_if<bool>(&value_);
  return value != nullptr ? std::optional<bool>(*value) : std::nullopt;
}

std::optional<int64_t> Json::AsInt() const {
  const int64_t* value = std::get_if<int64_t>(&value_);
  return value != nullptr ? std::optional<int64_t>(*value) : std::nullopt;
}

std::optional<double> Json::AsDouble() const {
  if (const int64_t* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
  const double* value = std::get_if<double>(&value_);
  return value != nullptr ? std::optional<double>(*value) : std::nullopt;
}

const Json* Json::Find(std::string_view key) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const Member& member : *object) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  Object* object = AsObject();
  VOXRT_CHECK(object != nullptr);
  for (Member& member : *object) {
    if (member.first == key) return member.second;
  }
  object->emplace_back(std::string(key), Json());
  return object->back().second;
}

void Json::Append(Json element) {
  if (is_null()) value_ = Array();
  Array* array = AsArray();
  VOXRT_CHECK(array != nullptr);
  array->push_back(std::move(element));
}

std::string Json::Dump(int indent) const {
  std::string out;
  DumpValue(*this, indent, 0, &out);
  return out;
}

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) { return Parse(text, limits, nullptr); }

Result<Json> ParseJsonStreaming(std::string_view text, const JsonLimits& limits, std::string_view key,
                                FunctionRef<Status(size_t, const Json&)> element) {
  const Stream stream{key, element};
  return Parse(text, limits, &stream);
}

std::string QuoteForMessage(std::string_view text) {
  constexpr size_t kMax = 120;
  std::string quoted;
  if (text.size() <= kMax) {
    DumpString(text, &quoted);
    return quoted;
  }
  size_t end = kMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;  // not inside a character
  DumpString(text.substr(0, end), &quoted);
  quoted.insert(quoted.size() - 1, "...");
  return quoted;
}

}  // namespace voxrt::base
