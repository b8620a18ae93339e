// Mistral's layout: params.json, consolidated.safetensors, tekken.json. Names are the canonical ones already.
#include "weights/checkpoint_source.h"

namespace voxrt::weights {

Result<CheckpointParts> ReadMistralDirectory(const std::string& folder) {
  CheckpointParts parts;
  parts.path = folder;
  parts.layout = "mistral";
  parts.rope_rows = RopeRows::kAdjacent;
  VOXRT_ASSIGN_OR_RETURN(parts.params_json, ReadFolderFile(folder, kParamsFile));
  Result<ModelConfig> config = ParseMistralParams(parts.params_json);
  if (!config.ok()) return WithPath(folder, config.status());
  parts.config = *config;
  VOXRT_ASSIGN_OR_RETURN(parts.tekken_json, ReadFolderFile(folder, kTekkenFile));
  VOXRT_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenSafetensors(folder + "/" + kConsolidatedFile));
  for (const SafetensorsEntry& entry : file.header.entries) {
    VOXRT_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(file, entry));
    parts.tensors.emplace(entry.name, std::move(tensor));
  }
  parts.files.push_back(file.file);
  return parts;
}

}  // namespace voxrt::weights
