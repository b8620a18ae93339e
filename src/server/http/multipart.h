// Incremental multipart/form-data: bytes in any cuts, parts out as they come, in constant memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace voxrt::server {

struct MultipartHeader {
  std::string name;
  std::optional<std::string> filename;  // present and empty is not absent
  std::string content_type;
};

// Receives the parts of one body. A Status that is not ok ends the parsing with that Status.
class MultipartSink {
 public:
  virtual ~MultipartSink() = default;
  virtual Status OnPart(const MultipartHeader& header) = 0;
  virtual Status OnData(std::string_view bytes) = 0;
  virtual Status OnPartEnd() = 0;
};

// The boundary of "multipart/form-data; boundary=..."; nullopt for another type or a boundary that RFC 2046 does not
// allow.
std::optional<std::string> MultipartBoundary(std::string_view content_type);

class MultipartParser {
 public:
  MultipartParser(std::string boundary, MultipartSink* sink);
  // kInvalidArgument with the reason when the body is not well formed. After an error nothing more is parsed.
  Status Push(std::string_view bytes);
  // The body ended: an error unless the closing delimiter was seen.
  Status Finish() const;

 private:
  enum class State : uint8_t { kPreamble, kDelimiterEnd, kHeaders, kBody, kEpilogue };
  // Each handles the buffer's beginning; true when it made progress and the next state may go on.
  Result<bool> StepContent();
  Result<bool> StepDelimiterEnd();
  Result<bool> StepHeaders();
  Status Deliver(std::string_view bytes);

  std::string delimiter_;  // CRLF, two hyphens, boundary
  MultipartSink* sink_;
  std::string buffer_;
  State state_ = State::kPreamble;
  State before_delimiter_ = State::kPreamble;
  int parts_ = 0;
};

// Parses the header block of one part (lines separated by CRLF, without the blank line).
Result<MultipartHeader> ParsePartHeaders(std::string_view block);

}  // namespace voxrt::server
