// ParseJson on any bytes: what it accepts is written and read back as the same value, parsing in streaming form agrees,
// and messages are one line without raw bytes of the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"

using voxrt::Result;
using voxrt::Status;
using voxrt::base::Json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  voxrt::base::JsonLimits limits;
  limits.max_values = 100'000;
  const Result<Json> json = voxrt::base::ParseJson(text, limits);
  size_t streamed = 0;
  const auto count = [&](size_t index, const Json& value) {
    if (index != streamed++ || value.TypeName() == nullptr) abort();
    return Status();
  };
  if (voxrt::base::ParseJsonStreaming(text, limits, "vocab", count).ok() != json.ok()) abort();
  if (json.ok()) {
    const Json* vocab = json->Find("vocab");
    if (vocab != nullptr && vocab->is_array() && vocab->AsArray()->size() != streamed) abort();
    for (const int indent : {-1, 1}) {
      const Result<Json> again = voxrt::base::ParseJson(json->Dump(indent));
      if (!again.ok() || !(*again == *json)) abort();
    }
  } else {
    const std::string& message = json.status().message();
    if (message.find('\n') != message.npos || message.size() > 1000) abort();
    // The message itself must be valid UTF-8: then it survives as a JSON string.
    const Result<Json> as_string = voxrt::base::ParseJson(Json(message).Dump());
    if (!as_string.ok() || *as_string->AsString() != message) abort();
  }
  return 0;
}
