// The safetensors file format, read: a pure parser over bytes. Layout: u64 little-endian header length, JSON header
// name -> {dtype, shape, data_offsets [begin, end)}, data without holes. Nothing is believed: lengths, types, shapes
// and offsets are checked with overflow-safe arithmetic, and the tensors must cover the data exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "quant/dtype.h"

namespace voxrt::weights {

// The metadata key by which a file that `voxrt export` wrote is known.
inline constexpr char kArtifactMark[] = "voxrt.artifact";

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;             // as in the file: "BF16"
  std::optional<quant::DType> dtype;  // empty for the types of the format that this program has no use for
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data; end - begin is what dtype and shape need
  int64_t end = 0;

  int64_t elements() const;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;                      // in the order of the header
  std::vector<std::pair<std::string, std::string>> metadata;  // of __metadata__
  int64_t data_offset = 0;                                    // of the data in the file

  const std::string* FindMetadata(std::string_view key) const;
};

// The header alone; the data may be missing or incomplete. kInvalidModel says what the bytes are instead (Git LFS
// pointer, HTML page, cut off, ...) and what to do.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file);

// That the tensors of a parsed header cover the data of a file of `file_bytes` exactly: no overlap, no hole, nothing
// missing, nothing appended.
Status CheckSafetensorsLayout(const SafetensorsHeader& header, int64_t file_bytes);

}  // namespace voxrt::weights
