// Exit codes; see docs/cli.md.
#include "cli.h"

namespace voxrt::app {

int ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kOk;
    case StatusCode::kInvalidArgument:
      return kUsage;
    case StatusCode::kInvalidModel:
    case StatusCode::kModelFileChanged:
    case StatusCode::kResourceExhausted:
    case StatusCode::kUnavailable:
    case StatusCode::kDeviceLost:
      return kModel;
    case StatusCode::kNotFound:
    case StatusCode::kInvalidAudio:
      return kInput;
    case StatusCode::kCancelled:
      return kInterrupted;
    case StatusCode::kIo:
    case StatusCode::kInternal:
      return kSomeFailed;
  }
  return kSomeFailed;
}

}  // namespace voxrt::app
