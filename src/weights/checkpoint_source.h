// What the model sources (Mistral directory, Hugging Face directory, artifact) hand to Checkpoint::Open: everything
// read and named, nothing yet validated against the config. One source = one file checkpoint_*.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"
#include "weights/tensor_table.h"

namespace voxrt::weights {

// File names of the two layouts.
inline constexpr char kParamsFile[] = "params.json";
inline constexpr char kConsolidatedFile[] = "consolidated.safetensors";
inline constexpr char kTekkenFile[] = "tekken.json";
inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kProcessorFile[] = "processor_config.json";
inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kIndexFile[] = "model.safetensors.index.json";

struct CheckpointParts {
  std::string path;
  std::string layout;
  ModelConfig config;
  std::string params_json;
  std::string tekken_json;
  RopeRows rope_rows = RopeRows::kAdjacent;
  int default_delay_tokens = 0;
  TensorMap tensors;
  FormatMap formats;
  std::vector<std::shared_ptr<const base::MappedFile>> files;
};

Result<CheckpointParts> ReadMistralDirectory(const std::string& folder);
Result<CheckpointParts> ReadHuggingFaceDirectory(const std::string& folder);
// `data_path` overrides the place of a manifest's data file; empty otherwise.
Result<CheckpointParts> ReadArtifact(const std::string& path, const std::string& data_path);
bool IsArtifactFile(const std::string& path);

// Shared by the sources.
struct SafetensorsFile {
  std::shared_ptr<const base::MappedFile> file;
  SafetensorsHeader header;
};
// Mapped, parsed, layout checked; messages begin with the path.
Result<SafetensorsFile> OpenSafetensors(const std::string& path);
// The tensor behind an entry of `file`. kInvalidModel for types that the project has no use for.
Result<Tensor> TensorOf(const SafetensorsFile& file, const SafetensorsEntry& entry);
// A JSON file of a checkpoint folder; absent files are named together with what to do.
Result<std::string> ReadFolderFile(const std::string& folder, const char* name);
bool FileExists(const std::string& folder, const char* name);
// The same status with "PATH: " in front of its message.
Status WithPath(const std::string& path, const Status& status);

}  // namespace voxrt::weights
