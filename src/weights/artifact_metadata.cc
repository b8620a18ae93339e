#include "weights/artifact_metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/sha.h"

namespace voxrt::weights {
namespace {

using base::Json;
using base::QuoteForMessage;

constexpr char kPartKey[] = "voxrt.part";
constexpr char kProducerKey[] = "voxrt.producer";
constexpr char kCommandKey[] = "voxrt.command";
constexpr char kQuantizerKey[] = "voxrt.quantizer";
constexpr char kSourceKey[] = "voxrt.source";
constexpr char kFormatsKey[] = "voxrt.formats";
constexpr char kOrderKey[] = "voxrt.order";
constexpr char kDefaultsKey[] = "voxrt.defaults";
constexpr char kDataKey[] = "voxrt.data";
// Versions of the byte orders of 4-bit codes.
constexpr char kOrder[] = "int4=run32.1 tile_packed_to_4d=inner_k_tiles8.1";
constexpr int kMaxDelayTokens = 30;

Status Bad(std::string message) { return Status(StatusCode::kInvalidModel, std::move(message)); }

const char* PartName(ArtifactMetadata::Part part) {
  switch (part) {
    case ArtifactMetadata::Part::kWhole:
      return "whole";
    case ArtifactMetadata::Part::kManifest:
      return "manifest";
    case ArtifactMetadata::Part::kData:
      return "data";
  }
  return "?";
}

std::string TextOf(const SafetensorsHeader& header, const char* key) {
  const std::string* text = header.FindMetadata(key);
  return text != nullptr ? *text : std::string();
}

std::string StringOf(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  const std::string* text = value != nullptr ? value->AsString() : nullptr;
  return text != nullptr ? *text : std::string();
}

int64_t IntOf(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value != nullptr ? value->AsInt().value_or(-1) : -1;
}

Result<Json> ReadJson(const SafetensorsHeader& header, const char* key) {
  Result<Json> json = base::ParseJson(TextOf(header, key));
  if (!json.ok())
    return Bad(fmt::format("the artifact's {} is damaged ({}); export it again", key, json.status().message()));
  return json;
}

bool IsSha256(std::string_view text) {
  return text.size() == static_cast<size_t>(kArtifactHashBytes) &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Status ReadFormats(const SafetensorsHeader& header, FormatMap* formats) {
  VOXRT_ASSIGN_OR_RETURN(const Json json, ReadJson(header, kFormatsKey));
  if (json.AsObject() == nullptr)
    return Bad(fmt::format("the artifact's {} is no object; export it again", kFormatsKey));
  for (const auto& [name, value] : *json.AsObject()) {
    const std::string* text = value.AsString();
    const std::optional<quant::Format> format = text != nullptr ? quant::ParseFormatName(*text) : std::nullopt;
    if (!format.has_value() || format->kind == quant::FormatKind::kFloat) {
      return Bad(fmt::format(
          "the artifact stores {} in a format that this version does not know ({}); update voxrt or export again",
          QuoteForMessage(name), text != nullptr ? QuoteForMessage(*text) : value.TypeName()));
    }
    formats->emplace(name, *format);
  }
  return {};
}

Status ReadDefaults(const SafetensorsHeader& header, ArtifactMetadata* metadata) {
  VOXRT_ASSIGN_OR_RETURN(const Json json, ReadJson(header, kDefaultsKey));
  metadata->delay_tokens = static_cast<int>(std::clamp<int64_t>(IntOf(json, "delay_tokens"), -1, kMaxDelayTokens + 1));
  metadata->encoder_window = IntOf(json, "encoder_window");
  metadata->decoder_window = IntOf(json, "decoder_window");
  metadata->max_seq_len = IntOf(json, "max_seq_len");
  const Json* streaming = json.Find("streaming");
  metadata->streaming = streaming != nullptr && streaming->AsBool().value_or(false);
  metadata->backend = StringOf(json, "backend");
  metadata->dtype = StringOf(json, "dtype");
  if (metadata->delay_tokens < 1 || metadata->delay_tokens > kMaxDelayTokens || metadata->encoder_window < 0 ||
      metadata->decoder_window < 0) {
    return Bad(fmt::format("the artifact's {} are out of range; export it again", kDefaultsKey));
  }
  return {};
}

Status ReadSources(const SafetensorsHeader& header, ArtifactMetadata* metadata) {
  VOXRT_ASSIGN_OR_RETURN(const Json json, ReadJson(header, kSourceKey));
  if (json.AsArray() == nullptr) return Bad(fmt::format("the artifact's {} is no array; export it again", kSourceKey));
  for (const Json& file : *json.AsArray())
    metadata->sources.push_back({StringOf(file, "file"), IntOf(file, "bytes"), StringOf(file, "sha256")});
  return {};
}

Status ReadData(const SafetensorsHeader& header, ArtifactMetadata* metadata) {
  VOXRT_ASSIGN_OR_RETURN(const Json json, ReadJson(header, kDataKey));
  ArtifactData data{StringOf(json, "file"), IntOf(json, "bytes"), StringOf(json, "sha256")};
  const bool plain = !data.file.empty() && data.file.find('/') == data.file.npos &&
                     data.file.find('\0') == data.file.npos && data.file != "..";
  if (!plain || data.bytes < 0 || !IsSha256(data.sha256)) {
    return Bad(fmt::format("the manifest's {} is damaged; export it again", kDataKey));
  }
  metadata->data = std::move(data);
  return {};
}

}  // namespace

bool IsArtifact(const SafetensorsHeader& header) { return header.FindMetadata(kArtifactMark) != nullptr; }

std::vector<std::pair<std::string, std::string>> WriteArtifactMetadata(const ArtifactMetadata& metadata) {
  std::vector<std::pair<std::string, std::string>> out = {{"format", "pt"},
                                                          {kArtifactMark, std::to_string(kArtifactVersion)},
                                                          {kPartKey, PartName(metadata.part)},
                                                          {kProducerKey, metadata.producer}};
  if (metadata.part == ArtifactMetadata::Part::kData) return out;
  Json::Object formats;
  for (const auto& [name, format] : metadata.formats) formats.emplace_back(name, quant::FormatName(format));
  Json::Array sources;
  for (const ArtifactSource& source : metadata.sources) {
    sources.push_back(Json::MakeObject({{"file", source.file}, {"bytes", source.bytes}, {"sha256", source.sha256}}));
  }
  out.emplace_back(kCommandKey, metadata.command);
  out.emplace_back(kQuantizerKey, metadata.quantizer);
  out.emplace_back(kSourceKey, Json(std::move(sources)).Dump());
  out.emplace_back(kFormatsKey, Json(std::move(formats)).Dump());
  out.emplace_back(kOrderKey, kOrder);
  out.emplace_back(kDefaultsKey, Json::MakeObject({{"delay_tokens", metadata.delay_tokens},
                                                   {"encoder_window", metadata.encoder_window},
                                                   {"decoder_window", metadata.decoder_window},
                                                   {"max_seq_len", metadata.max_seq_len},
                                                   {"streaming", metadata.streaming},
                                                   {"backend", metadata.backend},
                                                   {"dtype", metadata.dtype}})
                                     .Dump());
  if (metadata.data.has_value()) {
    out.emplace_back(kDataKey, Json::MakeObject({{"file", metadata.data->file},
                                                 {"bytes", metadata.data->bytes},
                                                 {"sha256", metadata.data->sha256}})
                                   .Dump());
  }
  return out;
}

Result<ArtifactMetadata> ParseArtifactMetadata(const SafetensorsHeader& header) {
  const std::string version = TextOf(header, kArtifactMark);
  if (version != std::to_string(kArtifactVersion)) {
    return Bad(
        fmt::format("the artifact has version {}, this program reads version {}; export it again or update voxrt",
                    QuoteForMessage(version), kArtifactVersion));
  }
  ArtifactMetadata metadata;
  const std::string part = TextOf(header, kPartKey);
  bool known = false;
  for (const auto candidate :
       {ArtifactMetadata::Part::kWhole, ArtifactMetadata::Part::kManifest, ArtifactMetadata::Part::kData}) {
    if (part == PartName(candidate)) {
      metadata.part = candidate;
      known = true;
    }
  }
  if (!known)
    return Bad(fmt::format("the artifact's part is {}, expected whole, manifest or data; export it again",
                           QuoteForMessage(part)));
  metadata.producer = TextOf(header, kProducerKey);
  if (metadata.part == ArtifactMetadata::Part::kData) return metadata;
  metadata.command = TextOf(header, kCommandKey);
  metadata.quantizer = TextOf(header, kQuantizerKey);
  VOXRT_RETURN_IF_ERROR(ReadSources(header, &metadata));
  VOXRT_RETURN_IF_ERROR(ReadFormats(header, &metadata.formats));
  VOXRT_RETURN_IF_ERROR(ReadDefaults(header, &metadata));
  if (const std::string order = TextOf(header, kOrderKey); order != kOrder) {
    return Bad(fmt::format("the artifact's order of codes is {}, expected \"{}\"; export it again or update voxrt",
                           QuoteForMessage(order), kOrder));
  }
  if (metadata.part == ArtifactMetadata::Part::kManifest) VOXRT_RETURN_IF_ERROR(ReadData(header, &metadata));
  return metadata;
}

std::string DataPath(const std::string& manifest_path, const std::string& data_path, const ArtifactData& data) {
  if (!data_path.empty()) return data_path;
  const size_t slash = manifest_path.rfind('/');
  return (slash == manifest_path.npos ? "" : manifest_path.substr(0, slash + 1)) + data.file;
}

std::string CombineTensorHashes(const std::vector<std::string>& sha256_of_tensors) {
  base::Sha256 sha;
  for (const std::string& hash : sha256_of_tensors) sha.Update(std::as_bytes(std::span(hash)));
  return sha.FinishHex();
}

}  // namespace voxrt::weights
