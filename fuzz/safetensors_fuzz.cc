// The safetensors parser on any bytes: what passes both checks has every tensor inside the file, none overlapping
// another.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "weights/safetensors.h"

namespace weights = voxrt::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const voxrt::Result<weights::SafetensorsHeader> header = weights::ParseSafetensorsHeader(file);
  if (!header.ok()) {
    if (header.status().message().find('\n') != std::string::npos) abort();
    return 0;
  }
  if (!weights::CheckSafetensorsLayout(*header, static_cast<int64_t>(size)).ok()) return 0;
  std::vector<bool> taken(size);
  for (const weights::SafetensorsEntry& entry : header->entries) {
    if (entry.begin < 0 || entry.end < entry.begin || entry.elements() < 0) abort();
    for (int64_t at = header->data_offset + entry.begin; at < header->data_offset + entry.end; ++at) {
      if (taken.at(static_cast<size_t>(at))) abort();
      taken[static_cast<size_t>(at)] = true;
    }
  }
  for (size_t at = static_cast<size_t>(header->data_offset); at < size; ++at) {
    if (!taken[at]) abort();
  }
  return 0;
}
