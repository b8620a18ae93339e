// What an exported artifact says about itself: the metadata of its safetensors file (docs/formats.md). Pure: strings
// in, strings out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "weights/safetensors.h"
#include "weights/tensor_table.h"

namespace voxrt::weights {

inline constexpr int kArtifactVersion = 1;
// Tensors of bytes at the end of an artifact.
inline constexpr char kArtifactParams[] = "params.json";
inline constexpr char kArtifactTekken[] = "tekken.json";
inline constexpr char kArtifactHash[] = "voxrt.sha256";
inline constexpr int64_t kArtifactHashBytes = 64;

struct ArtifactSource {
  std::string file;
  int64_t bytes = 0;
  std::string sha256;
};

// The second file of a pair (--data-path).
struct ArtifactData {
  std::string file;  // name beside the manifest
  int64_t bytes = 0;
  std::string sha256;  // the contents of its tensor voxrt.sha256
};

struct ArtifactMetadata {
  enum class Part : uint8_t { kWhole, kManifest, kData };
  Part part = Part::kWhole;
  std::string producer;
  std::string command;
  std::string quantizer;
  std::vector<ArtifactSource> sources;
  FormatMap formats;
  std::optional<ArtifactData> data;  // of a manifest
  // Defaults; the run may choose others.
  int delay_tokens = 0;
  int64_t encoder_window = 0;  // 0 = as in params.json
  int64_t decoder_window = 0;
  int64_t max_seq_len = 0;
  bool streaming = false;
  std::string backend;
  std::string dtype;
};

// Where the data file of a manifest is: at `data_path`, or beside the manifest where that is empty.
std::string DataPath(const std::string& manifest_path, const std::string& data_path, const ArtifactData& data);

// Whether a file claims to be an artifact.
bool IsArtifact(const SafetensorsHeader& header);

std::vector<std::pair<std::string, std::string>> WriteArtifactMetadata(const ArtifactMetadata& metadata);
// kInvalidModel: another version (names both), an unknown order of codes, or damage.
Result<ArtifactMetadata> ParseArtifactMetadata(const SafetensorsHeader& header);

// Hash of the contents of an artifact: SHA-256 of the hexadecimal SHA-256 of every tensor in file order, voxrt.sha256
// left out.
std::string CombineTensorHashes(const std::vector<std::string>& sha256_of_tensors);

}  // namespace voxrt::weights
