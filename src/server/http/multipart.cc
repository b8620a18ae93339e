// The buffer never holds more than one pushed chunk plus a delimiter or one header block: content is handed on as soon
// as it cannot be the beginning of a delimiter.
#include "server/http/multipart.h"

#include "server/http/credentials.h"

namespace voxrt::server {
namespace {

constexpr size_t kMaxHeaderBytes = 16 * 1024;
constexpr int kMaxParts = 1000;

Status Malformed(const std::string& what) {
  return {StatusCode::kInvalidArgument, "The multipart body is malformed: " + what};
}

std::string_view TrimSpaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The next `; key=value` of a header value; advances `rest`. False at the end.
bool NextParameter(std::string_view* rest, std::string* key, std::string* value) {
  const size_t semicolon = rest->find(';');
  if (semicolon == std::string_view::npos) return false;
  *rest = rest->substr(semicolon + 1);
  const size_t equals = rest->find_first_of("=;");
  if (equals == std::string_view::npos || (*rest)[equals] == ';') {
    key->clear();
    return true;
  }
  *key = std::string(TrimSpaces(rest->substr(0, equals)));
  *rest = TrimSpaces(rest->substr(equals + 1));
  value->clear();
  if (rest->empty() || rest->front() != '"') {
    *value = std::string(TrimSpaces(rest->substr(0, rest->find(';'))));
    return true;
  }
  size_t i = 1;
  for (; i < rest->size() && (*rest)[i] != '"'; ++i) {
    if ((*rest)[i] == '\\' && i + 1 < rest->size() && ((*rest)[i + 1] == '"' || (*rest)[i + 1] == '\\')) ++i;
    *value += (*rest)[i];
  }
  *rest = rest->substr(std::min(i + 1, rest->size()));
  return true;
}

bool ValidBoundary(std::string_view boundary) {
  if (boundary.empty() || boundary.size() > 200) return false;
  return boundary.find_first_of("\r\n\t") == std::string_view::npos && boundary.back() != ' ';
}

}  // namespace

std::optional<std::string> MultipartBoundary(std::string_view content_type) {
  if (!EqualsIgnoreCase(TrimSpaces(content_type.substr(0, content_type.find(';'))), "multipart/form-data"))
    return std::nullopt;
  std::string key, value;
  while (NextParameter(&content_type, &key, &value)) {
    if (EqualsIgnoreCase(key, "boundary")) return ValidBoundary(value) ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

Result<MultipartHeader> ParsePartHeaders(std::string_view block) {
  MultipartHeader header;
  bool has_name = false;
  while (!block.empty()) {
    const size_t end = block.find("\r\n");
    const std::string_view line = block.substr(0, end);
    block = end == std::string_view::npos ? std::string_view() : block.substr(end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Malformed("a header line of a part has no colon");
    const std::string_view name = TrimSpaces(line.substr(0, colon));
    std::string_view value = TrimSpaces(line.substr(colon + 1));
    if (EqualsIgnoreCase(name, "content-type")) header.content_type = std::string(value);
    if (!EqualsIgnoreCase(name, "content-disposition")) continue;
    std::string key, parameter;
    while (NextParameter(&value, &key, &parameter)) {
      if (EqualsIgnoreCase(key, "name")) {
        header.name = parameter;
        has_name = true;
      } else if (EqualsIgnoreCase(key, "filename")) {
        header.filename = parameter;
      }
    }
  }
  if (!has_name) return Malformed("a part has no name in its Content-Disposition");
  return header;
}

MultipartParser::MultipartParser(std::string boundary, MultipartSink* sink)
    : delimiter_("\r\n--" + std::move(boundary)),
      sink_(sink),
      buffer_("\r\n") {}  // the first delimiter needs no line before it

Status MultipartParser::Push(std::string_view bytes) {
  if (state_ == State::kEpilogue) return {};
  buffer_.append(bytes);
  bool progress = true;
  while (progress) {
    Result<bool> step = true;
    switch (state_) {
      case State::kPreamble:
      case State::kBody:
        step = StepContent();
        break;
      case State::kDelimiterEnd:
        step = StepDelimiterEnd();
        break;
      case State::kHeaders:
        step = StepHeaders();
        break;
      case State::kEpilogue:
        buffer_ = std::string();
        return {};
    }
    if (!step.ok()) return step.status();
    progress = *step;
  }
  return {};
}

Status MultipartParser::Deliver(std::string_view bytes) {
  if (state_ != State::kBody || bytes.empty()) return {};
  return sink_->OnData(bytes);
}

Result<bool> MultipartParser::StepContent() {
  const size_t at = buffer_.find(delimiter_);
  if (at == std::string::npos) {
    const size_t keep = std::min(buffer_.size(), delimiter_.size() - 1);
    const size_t give = buffer_.size() - keep;
    VOXRT_RETURN_IF_ERROR(Deliver(std::string_view(buffer_).substr(0, give)));
    buffer_.erase(0, give);
    return false;
  }
  VOXRT_RETURN_IF_ERROR(Deliver(std::string_view(buffer_).substr(0, at)));
  buffer_.erase(0, at);
  before_delimiter_ = state_;
  state_ = State::kDelimiterEnd;
  return true;
}

// The buffer begins with the delimiter; what follows decides whether it is one.
Result<bool> MultipartParser::StepDelimiterEnd() {
  const std::string_view after = std::string_view(buffer_).substr(delimiter_.size());
  const size_t padding = std::min(after.find_first_not_of(" \t"), after.size());
  if (padding > 256) return Malformed("too many spaces after a boundary");
  const std::string_view rest = after.substr(padding);
  const bool last = after.starts_with("--");
  const bool next = rest.starts_with("\r\n");
  if (!last && !next && (rest.empty() || rest == "\r" || after == "-")) return false;
  if (!last && !next) {  // content that begins like the delimiter
    state_ = before_delimiter_;
    VOXRT_RETURN_IF_ERROR(Deliver(delimiter_));
    buffer_.erase(0, delimiter_.size());
    return true;
  }
  if (before_delimiter_ == State::kBody) VOXRT_RETURN_IF_ERROR(sink_->OnPartEnd());
  if (next && ++parts_ > kMaxParts) return Malformed("more than 1000 parts");
  buffer_.erase(0, next ? delimiter_.size() + padding : buffer_.size());  // keeps the CRLF: a part may have no headers
  state_ = last ? State::kEpilogue : State::kHeaders;
  return true;
}

// The buffer begins with the CRLF that ended the delimiter line.
Result<bool> MultipartParser::StepHeaders() {
  const size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos) {
    if (buffer_.size() > kMaxHeaderBytes) return Malformed("the headers of a part are longer than 16 KiB");
    return false;
  }
  if (end > kMaxHeaderBytes) return Malformed("the headers of a part are longer than 16 KiB");
  const std::string_view block = end >= 2 ? std::string_view(buffer_).substr(2, end - 2) : std::string_view();
  VOXRT_ASSIGN_OR_RETURN(const MultipartHeader header, ParsePartHeaders(block));
  VOXRT_RETURN_IF_ERROR(sink_->OnPart(header));
  buffer_.erase(0, end + 4);
  state_ = State::kBody;
  return true;
}

Status MultipartParser::Finish() const {
  if (state_ == State::kEpilogue) return {};
  return Malformed("it ends before the closing boundary");
}

}  // namespace voxrt::server
