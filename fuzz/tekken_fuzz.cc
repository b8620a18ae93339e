// Tekken::Parse on any bytes: an accepted vocabulary answers every id, and its bytes through the assembler are valid
// UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tekken.h"
#include "text/utf8_assembler.h"

using voxrt::text::Tekken;

namespace {

bool IsValidUtf8(const std::string& text) {
  const auto json = voxrt::base::ParseJson(voxrt::base::Json(text).Dump());
  return json.ok() && *json->AsString() == text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const voxrt::Result<Tekken> tekken = Tekken::Parse({reinterpret_cast<const char*>(data), size});
  if (!tekken.ok()) return 0;
  const int last = tekken->vocab_size();
  for (const int32_t id : {tekken->bos(), tekken->eos(), tekken->pad(), tekken->word().value_or(0)}) {
    if (id < 0 || id >= tekken->special_count() || !tekken->IsSpecial(id) || !tekken->Bytes(id).empty()) abort();
  }
  if (tekken->left_pad_tokens() < 1 || tekken->default_delay_ms() % 80 != 0 || tekken->default_delay_ms() < 80) abort();
  voxrt::text::Utf8Assembler assembler;
  for (int32_t id = -1; id <= (last < 5000 ? last : 5000); ++id) {
    const std::string piece = assembler.Push(tekken->Bytes(id));
    if (!IsValidUtf8(piece)) abort();
  }
  if (!tekken->Bytes(last).empty()) abort();
  if (!IsValidUtf8(assembler.Finish())) abort();
  return 0;
}
