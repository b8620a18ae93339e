// Exported artifacts: one safetensors file that holds weights, params.json and tekken.json, or a manifest beside a data
// file. Layout and metadata: docs/formats.md. Names and types are checked by ValidateTable like those of every other
// source.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "weights/artifact_metadata.h"
#include "weights/checkpoint_source.h"

namespace voxrt::weights {
namespace {

Status Bad(const std::string& path, std::string_view message) {
  return Status(StatusCode::kInvalidModel, fmt::format("{}: {}", path, message));
}

const SafetensorsEntry* FindEntry(const SafetensorsFile& file, std::string_view name) {
  for (const SafetensorsEntry& entry : file.header.entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// One of the byte files inside the artifact.
Result<std::string> ReadBytes(const SafetensorsFile& file, const char* name) {
  const SafetensorsEntry* entry = FindEntry(file, name);
  if (entry == nullptr || entry->dtype != quant::DType::kU8 || entry->shape.size() != 1) {
    return Bad(file.file->path(),
               fmt::format("the artifact holds no {} (a one-dimensional U8 tensor); export it again", name));
  }
  const auto* data = reinterpret_cast<const char*>(file.file->bytes().data() + file.header.data_offset + entry->begin);
  return std::string(data, static_cast<size_t>(entry->end - entry->begin));
}

bool IsByteFile(std::string_view name) {
  return name == kArtifactParams || name == kArtifactTekken || name == kArtifactHash;
}

// The data file of a manifest.
Result<SafetensorsFile> OpenData(const std::string& manifest_path, const std::string& data_path,
                                 const ArtifactData& data) {
  const std::string path = DataPath(manifest_path, data_path, data);
  Result<SafetensorsFile> opened = OpenSafetensors(path);
  if (!opened.ok()) {
    if (opened.status().code() != StatusCode::kNotFound) return opened.status();
    return Status(
        StatusCode::kNotFound,
        fmt::format("{} is the manifest of {} ({} bytes), which is not at {}; put it there or name it with --data-path",
                    manifest_path, base::QuoteForMessage(data.file), data.bytes, path));
  }
  const auto bytes = static_cast<int64_t>(opened->file->bytes().size());
  if (bytes != data.bytes) {
    return Bad(path,
               fmt::format("the data file has {} bytes, its manifest {} expects {}; it is damaged or of another export",
                           bytes, manifest_path, data.bytes));
  }
  Result<std::string> hash = ReadBytes(*opened, kArtifactHash);
  if (!hash.ok() || *hash != data.sha256) {
    return Bad(
        path,
        fmt::format("the data file is not the one of the manifest {} (its hash differs); they are of different exports",
                    manifest_path));
  }
  return opened;
}

// A head that shares the 8-bit rows of the embedding, with int8 activations of its own, is listed under its own name.
void AddSharedHead(CheckpointParts* parts) {
  const auto head = parts->formats.find(kHeadName);
  const auto table = parts->formats.find(kEmbeddingName);
  if (head == parts->formats.end() || table == parts->formats.end() ||
      parts->tensors.find(kHeadName) != parts->tensors.end())
    return;
  const auto per_row = [](const quant::Format& format) {
    return format.kind == quant::FormatKind::kInt8 && format.group == 0;
  };
  if (!per_row(head->second) || !per_row(table->second)) return;
  for (const char* suffix : {"", ".scale"}) {
    const auto found = parts->tensors.find(std::string(kEmbeddingName) + suffix);
    if (found != parts->tensors.end()) parts->tensors.emplace(std::string(kHeadName) + suffix, found->second);
  }
}

Status ApplyWindows(const std::string& path, const ArtifactMetadata& metadata, ModelConfig* config) {
  if (metadata.encoder_window > config->encoder.window || metadata.decoder_window > config->decoder.window) {
    return Bad(path, "the artifact's default windows are above the model's; export it again");
  }
  if (metadata.encoder_window > 0) config->encoder.window = metadata.encoder_window;
  if (metadata.decoder_window > 0) config->decoder.window = metadata.decoder_window;
  return {};
}

}  // namespace

Result<CheckpointParts> ReadArtifact(const std::string& path, const std::string& data_path) {
  VOXRT_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenSafetensors(path));
  if (!IsArtifact(file.header)) {
    return Bad(path,
               "the file was not written by `voxrt export`; name the directory of the checkpoint instead (params.json "
               "beside it is needed)");
  }
  Result<ArtifactMetadata> metadata = ParseArtifactMetadata(file.header);
  if (!metadata.ok()) return WithPath(path, metadata.status());
  if (metadata->part == ArtifactMetadata::Part::kData)
    return Bad(path, "this is the data file of an artifact; name its manifest instead");
  CheckpointParts parts;
  parts.path = path;
  parts.layout = "artifact";
  parts.default_delay_tokens = metadata->delay_tokens;
  parts.formats = metadata->formats;
  parts.files.push_back(file.file);
  VOXRT_ASSIGN_OR_RETURN(parts.params_json, ReadBytes(file, kArtifactParams));
  VOXRT_ASSIGN_OR_RETURN(parts.tekken_json, ReadBytes(file, kArtifactTekken));
  Result<ModelConfig> config = ParseMistralParams(parts.params_json);
  if (!config.ok()) return WithPath(path, config.status());
  parts.config = *config;
  VOXRT_RETURN_IF_ERROR(ApplyWindows(path, *metadata, &parts.config));

  SafetensorsFile weights = file;
  if (metadata->data.has_value()) {
    VOXRT_ASSIGN_OR_RETURN(weights, OpenData(path, data_path, *metadata->data));
    parts.files.push_back(weights.file);
  } else if (!data_path.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} holds its weights itself; leave out --data-path", path));
  }
  for (const SafetensorsEntry& entry : weights.header.entries) {
    if (IsByteFile(entry.name)) continue;
    VOXRT_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(weights, entry));
    parts.tensors.emplace(entry.name, std::move(tensor));
  }
  AddSharedHead(&parts);
  for (const auto& [name, format] : parts.formats) {
    if (parts.tensors.find(name) == parts.tensors.end()) {
      return Bad(path, fmt::format("tensor {} ({}) is missing; the artifact is damaged, export it again",
                                   base::QuoteForMessage(name), quant::FormatName(format)));
    }
  }
  return parts;
}

bool IsArtifactFile(const std::string& path) {
  Result<SafetensorsFile> file = OpenSafetensors(path);
  return file.ok() && IsArtifact(file->header);
}

}  // namespace voxrt::weights
