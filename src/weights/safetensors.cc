#include "weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json.h"

namespace voxrt::weights {
namespace {

using base::Json;
using base::QuoteForMessage;

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;  // the format's own limit
constexpr size_t kMaxRank = 8;

Status Bad(std::string message) { return Status(StatusCode::kInvalidModel, std::move(message)); }

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Bytes per element of every type of the format; 0 = unknown.
int64_t ElementBytes(std::string_view dtype_name) {
  struct Row {
    std::string_view name;
    int64_t bytes;
  };
  constexpr Row kRows[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
                           {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
                           {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};
  for (const Row& row : kRows) {
    if (row.name == dtype_name) return row.bytes;
  }
  return 0;
}

// Product of the dimensions, or -1 when it does not fit.
int64_t CountElements(const std::vector<int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t count = 1;
  for (int64_t dimension : shape) {
    if (count > std::numeric_limits<int64_t>::max() / dimension) return -1;
    count *= dimension;
  }
  return count;
}

// What the file is instead, or empty: the mistakes that downloads make.
std::string DescribeForeign(std::string_view file) {
  if (file.empty()) return "the file is empty; download it again";
  if (file.starts_with("version https://git-lfs.github.com/spec/")) {
    return fmt::format(
        "this is a Git LFS pointer of {} bytes, not the weights; run `git lfs pull` or download the file again",
        file.size());
  }
  std::string_view text = file.substr(0, 512);
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t\r\n\xEF\xBB\xBF")));
  if (text.starts_with("<")) {
    return "this is an HTML or XML page, not the weights (a login or error page was saved); download the file again";
  }
  if (text.starts_with("{")) return "this is JSON text, not the weights; download the file again";
  if (file.starts_with("GGUF")) return "this is a GGUF file, expected safetensors";
  if (file.starts_with("PK\x03\x04")) return "this is a ZIP archive (a PyTorch file?), expected safetensors";
  return "";
}

Status ReadOffsets(const Json* offsets, SafetensorsEntry* entry) {
  const Json::Array* pair = offsets != nullptr ? offsets->AsArray() : nullptr;
  const bool two = pair != nullptr && pair->size() == 2;
  const std::optional<int64_t> begin = two ? (*pair)[0].AsInt() : std::nullopt;
  const std::optional<int64_t> end = two ? (*pair)[1].AsInt() : std::nullopt;
  if (!begin.has_value() || !end.has_value() || *begin < 0 || *end < *begin) {
    return Bad(fmt::format("tensor {} has no valid data_offsets, expected [begin, end)", QuoteForMessage(entry->name)));
  }
  entry->begin = *begin;
  entry->end = *end;
  return Status();
}

Status ReadShape(const Json* shape, SafetensorsEntry* entry) {
  const Json::Array* dimensions = shape != nullptr ? shape->AsArray() : nullptr;
  Status bad = Bad(fmt::format("tensor {} has no valid shape", QuoteForMessage(entry->name)));
  if (dimensions == nullptr || dimensions->size() > kMaxRank) return bad;
  for (const Json& dimension : *dimensions) {
    const std::optional<int64_t> size = dimension.AsInt();
    if (!size.has_value() || *size < 0) return bad;
    entry->shape.push_back(*size);
  }
  return Status();
}

Result<SafetensorsEntry> ReadEntry(const std::string& name, const Json& value) {
  SafetensorsEntry entry;
  entry.name = name;
  const Json* dtype = value.Find("dtype");
  if (dtype == nullptr || dtype->AsString() == nullptr)
    return Bad(fmt::format("tensor {} has no dtype", QuoteForMessage(name)));
  entry.dtype_name = *dtype->AsString();
  entry.dtype = quant::ParseDType(entry.dtype_name);
  const int64_t element_bytes = ElementBytes(entry.dtype_name);
  if (element_bytes == 0) {
    return Bad(
        fmt::format("tensor {} has the unknown dtype {}", QuoteForMessage(name), QuoteForMessage(entry.dtype_name)));
  }
  VOXRT_RETURN_IF_ERROR(ReadShape(value.Find("shape"), &entry));
  VOXRT_RETURN_IF_ERROR(ReadOffsets(value.Find("data_offsets"), &entry));
  const int64_t elements = CountElements(entry.shape);
  if (elements < 0 || elements > std::numeric_limits<int64_t>::max() / element_bytes) {
    return Bad(fmt::format("tensor {} is larger than any file", QuoteForMessage(name)));
  }
  if (elements * element_bytes != entry.end - entry.begin) {
    return Bad(fmt::format("tensor {} has {} bytes of data, its {} shape needs {}", QuoteForMessage(name),
                           entry.end - entry.begin, entry.dtype_name, elements * element_bytes));
  }
  return entry;
}

Status ReadMetadata(const Json& value, SafetensorsHeader* header) {
  if (!value.is_object()) return Bad("__metadata__ of the header is no object");
  for (const Json::Member& member : *value.AsObject()) {
    const std::string* text = member.second.AsString();
    if (text == nullptr) return Bad(fmt::format("metadata {} is no string", QuoteForMessage(member.first)));
    header->metadata.emplace_back(member.first, *text);
  }
  return Status();
}

const char* HowToReplace(bool artifact) { return artifact ? "export" : "download"; }

// Of a header that cannot be read: metadata is at its beginning.
const char* HowToReplace(std::span<const std::byte> file) {
  constexpr size_t kSearchedBytes = 256;
  return HowToReplace(AsText(file).substr(0, kSearchedBytes).find(kArtifactMark) != std::string_view::npos);
}

// The length of the JSON header; everything that is no safetensors file ends here.
Result<size_t> ReadHeaderLength(std::span<const std::byte> file) {
  uint64_t length = 0;
  for (size_t i = std::min<size_t>(kLengthBytes, file.size()); i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(file[i]);
  }
  const bool is_short = file.size() < kLengthBytes;
  if (is_short || length > kMaxHeaderBytes || length < 2) {
    // Only now: the length of a good file may begin like text ("{" is 123).
    const std::string foreign = DescribeForeign(AsText(file));
    if (!foreign.empty()) return Bad(foreign);
    if (is_short)
      return Bad(fmt::format("the file has only {} bytes, not even a header; download it again", file.size()));
    return Bad(fmt::format("not a safetensors file: it begins with a header length of {} bytes; {} it again", length,
                           HowToReplace(file)));
  }
  if (length > file.size() - kLengthBytes) {
    return Bad(fmt::format("the file is cut off inside its header: {} bytes of {} are there; {} it again", file.size(),
                           length + kLengthBytes, HowToReplace(file)));
  }
  return static_cast<size_t>(length);
}

}  // namespace

int64_t SafetensorsEntry::elements() const { return CountElements(shape); }

const std::string* SafetensorsHeader::FindMetadata(std::string_view key) const {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file) {
  VOXRT_ASSIGN_OR_RETURN(const size_t length, ReadHeaderLength(file));
  const base::JsonLimits limits{.max_bytes = kMaxHeaderBytes, .max_depth = 8, .max_values = 4'000'000};
  Result<Json> json = base::ParseJson(AsText(file.subspan(kLengthBytes, length)), limits);
  if (!json.ok()) {
    return Bad(fmt::format("not a safetensors file, or a damaged one: its header is {}; {} it again",
                           json.status().message(), HowToReplace(file)));
  }
  if (!json->is_object()) return Bad(fmt::format("the header is {}, expected an object", json->TypeName()));
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + static_cast<int64_t>(length);
  header.entries.reserve(json->AsObject()->size());
  for (const Json::Member& member : *json->AsObject()) {
    if (member.first == "__metadata__") {
      VOXRT_RETURN_IF_ERROR(ReadMetadata(member.second, &header));
      continue;
    }
    VOXRT_ASSIGN_OR_RETURN(SafetensorsEntry entry, ReadEntry(member.first, member.second));
    header.entries.push_back(std::move(entry));
  }
  return header;
}

Status CheckSafetensorsLayout(const SafetensorsHeader& header, int64_t file_bytes) {
  std::vector<const SafetensorsEntry*> by_place;
  by_place.reserve(header.entries.size());
  for (const SafetensorsEntry& entry : header.entries) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  int64_t at = 0;
  for (const SafetensorsEntry* entry : by_place) {
    if (entry->begin != at) {
      return Bad(fmt::format("tensor {} begins at byte {} of the data, expected {}: {}", QuoteForMessage(entry->name),
                             entry->begin, at, entry->begin < at ? "tensors overlap" : "a hole between tensors"));
    }
    at = entry->end;
  }
  const int64_t found = file_bytes - header.data_offset;
  const char* again = HowToReplace(header.FindMetadata(kArtifactMark) != nullptr);
  if (found < at) {
    return Bad(fmt::format("the file is cut off: {} bytes of {} are there; {} it again", file_bytes,
                           header.data_offset + at, again));
  }
  if (found > at) {
    return Bad(fmt::format("the file is {} bytes longer than its header says ({} instead of {}); {} it again",
                           found - at, file_bytes, header.data_offset + at, again));
  }
  return Status();
}

}  // namespace voxrt::weights
