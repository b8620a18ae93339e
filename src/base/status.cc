#include "base/status.h"

namespace voxrt {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kInvalidModel:
      return "invalid_model";
    case StatusCode::kInvalidAudio:
      return "invalid_audio";
    case StatusCode::kModelFileChanged:
      return "model_file_changed";
    case StatusCode::kResourceExhausted:
      return "resource_exhausted";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kDeviceLost:
      return "device_lost";
    case StatusCode::kIo:
      return "io";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace voxrt
