// Status and Result<T>: how everything that comes from outside (files, network, flags, devices, memory) reports
// failure. A message says what was found, what was expected and what to do, in one line without a final full stop.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace voxrt {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // a flag, option or call argument is wrong
  kNotFound,           // a file, device or name does not exist
  kInvalidModel,       // checkpoint, artifact or tekken.json is damaged or of another model
  kInvalidAudio,       // audio input is damaged or of an unsupported kind
  kModelFileChanged,   // a mapped model file shrank or vanished while in use
  kResourceExhausted,  // memory, slots or a documented limit
  kUnavailable,        // device or library missing on this machine, or no good answer from a server
  kCancelled,          // the user or the caller ended it
  kDeviceLost,         // sticky device fault: all its sessions end
  kIo,                 // read or write failed
  kInternal,           // should not happen, reported instead of aborting
};

// "invalid_model" and so on: stable names used in JSON output and logs.
const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Either a value or a Status that is not ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    VOXRT_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    VOXRT_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    VOXRT_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    VOXRT_CHECK(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace voxrt

// Returns from the enclosing function when `expression` (a Status) is not ok.
#define VOXRT_RETURN_IF_ERROR(expression)          \
  do {                                             \
    ::voxrt::Status voxrt_status_ = (expression);  \
    if (!voxrt_status_.ok()) return voxrt_status_; \
  } while (false)

#define VOXRT_CONCAT_INNER(a, b) a##b
#define VOXRT_CONCAT(a, b) VOXRT_CONCAT_INNER(a, b)
// VOXRT_ASSIGN_OR_RETURN(auto x, Function()): x is the value, or the enclosing function returns the Status.
#define VOXRT_ASSIGN_OR_RETURN(declaration, expression)                                                   \
  auto VOXRT_CONCAT(voxrt_result_, __LINE__) = (expression);                                              \
  if (!VOXRT_CONCAT(voxrt_result_, __LINE__).ok()) return VOXRT_CONCAT(voxrt_result_, __LINE__).status(); \
  declaration = *std::move(VOXRT_CONCAT(voxrt_result_, __LINE__))
