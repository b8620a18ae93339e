// Hugging Face's layout: config.json, model.safetensors or an index with shards, tekken.json; processor_config.json
// where it is there. Names are mapped to the canonical ones; wq and wk keep their rows in half-split order.
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "base/json.h"
#include "weights/checkpoint_source.h"
#include "weights/huggingface_names.h"

namespace voxrt::weights {
namespace {

using base::Json;
using base::QuoteForMessage;

Status Bad(std::string message) { return Status(StatusCode::kInvalidModel, std::move(message)); }

// The shard files of an index, each once. `weight_map` is only used for that: what a shard holds is in its own header.
Result<std::set<std::string>> ReadIndex(const std::string& folder) {
  VOXRT_ASSIGN_OR_RETURN(const std::string text, ReadFolderFile(folder, kIndexFile));
  const std::string path = folder + "/" + kIndexFile;
  Result<Json> json = base::ParseJson(text);
  if (!json.ok()) return Bad(fmt::format("{}: {}; download it again", path, json.status().message()));
  const Json* map = json->Find("weight_map");
  const Json::Object* members = map != nullptr ? map->AsObject() : nullptr;
  if (members == nullptr || members->empty()) return Bad(fmt::format("{}: weight_map is missing or empty", path));
  std::set<std::string> shards;
  for (const Json::Member& member : *members) {
    const std::string* shard = member.second.AsString();
    // Only plain names: an index must not reach out of its folder.
    if (shard == nullptr || shard->empty() || shard->find('/') != shard->npos || shard->find('\0') != shard->npos ||
        *shard == "..") {
      return Bad(fmt::format("{}: the file of tensor {} is no plain file name", path, QuoteForMessage(member.first)));
    }
    shards.insert(*shard);
  }
  return shards;
}

Status AddTensors(const SafetensorsFile& file, TensorMap* tensors) {
  for (const SafetensorsEntry& entry : file.header.entries) {
    if (IsRecomputedConstant(entry.name)) continue;
    const std::optional<std::string> name = CanonicalName(entry.name);
    if (!name.has_value()) {
      return Bad(fmt::format("{}: tensor {} is not one of this model's; the file is of another model",
                             file.file->path(), QuoteForMessage(entry.name)));
    }
    VOXRT_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(file, entry));
    const auto [at, added] = tensors->emplace(*name, std::move(tensor));
    if (!added) {
      return Bad(fmt::format("{}: tensor {} is stored twice, also as {}", file.file->path(),
                             QuoteForMessage(entry.name), QuoteForMessage(at->second.stored_name)));
    }
  }
  return Status();
}

// transformers saves the tied head as a copy of the embedding: dropped when it is one.
void DropTiedHead(TensorMap* tensors) {
  const auto head = tensors->find(kHeadName);
  const auto embedding = tensors->find(kEmbeddingName);
  if (head == tensors->end() || embedding == tensors->end()) return;
  const Tensor& a = head->second;
  const Tensor& b = embedding->second;
  if (a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes)) == 0) {
    tensors->erase(head);
  }
}

// config.json does not know the width of the delay MLP.
Status TakeDelayWidth(const CheckpointParts& parts, ModelConfig* config) {
  const auto found = parts.tensors.find("layers.0.ada_rms_norm_t_cond.0.weight");
  if (found == parts.tensors.end() || found->second.shape.size() != 2 || found->second.shape[0] < 1) {
    return Bad(fmt::format(
        "{}: the delay layers (ada_rms_norm.linear1) are missing; expected Voxtral-Mini-4B-Realtime-2602", parts.path));
  }
  config->ada_dim = found->second.shape[0];
  return Status();
}

}  // namespace

Result<CheckpointParts> ReadHuggingFaceDirectory(const std::string& folder) {
  CheckpointParts parts;
  parts.path = folder;
  parts.layout = "huggingface";
  parts.rope_rows = RopeRows::kHalf;
  VOXRT_ASSIGN_OR_RETURN(const std::string config_json, ReadFolderFile(folder, kConfigFile));
  std::string processor_json;
  if (FileExists(folder, kProcessorFile)) {
    VOXRT_ASSIGN_OR_RETURN(processor_json, ReadFolderFile(folder, kProcessorFile));
  }
  Result<ModelConfig> config = ParseHuggingFaceConfig(config_json, processor_json);
  if (!config.ok()) return WithPath(folder, config.status());
  parts.config = *config;
  VOXRT_ASSIGN_OR_RETURN(parts.tekken_json, ReadFolderFile(folder, kTekkenFile));

  std::set<std::string> names{kModelFile};
  if (!FileExists(folder, kModelFile)) {
    VOXRT_ASSIGN_OR_RETURN(names, ReadIndex(folder));
  }
  for (const std::string& name : names) {
    VOXRT_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenSafetensors(fmt::format("{}/{}", folder, name)));
    VOXRT_RETURN_IF_ERROR(AddTensors(file, &parts.tensors));
    parts.files.push_back(file.file);
  }
  DropTiedHead(&parts.tensors);
  VOXRT_RETURN_IF_ERROR(TakeDelayWidth(parts, &parts.config));
  parts.params_json = WriteMistralParams(parts.config);
  return parts;
}

}  // namespace voxrt::weights
