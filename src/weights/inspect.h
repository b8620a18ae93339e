// What a model path is, for `voxrt inspect`: layout, dimensions, tensors, sizes, memory needed. Works on damaged models
// too: then it holds what could be read, and the error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/model_config.h"

namespace voxrt::weights {

struct TensorReport {
  std::string name;   // canonical; as stored where the model could not be opened
  std::string dtype;  // "BF16"
  std::vector<int64_t> shape;
  std::string format;  // "bf16", "8da4w g128"; empty for what belongs to another tensor (scales) or is unknown
  int64_t bytes = 0;
};

struct FileReport {
  std::string path;
  int64_t bytes = 0;
  std::vector<std::pair<std::string, std::string>> metadata;  // of its safetensors header
};

struct DTypeReport {
  std::string dtype;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

// Bytes of one session's key/value caches when both rings are full (docs/model.md 8.1).
struct CacheReport {
  std::string kv_type;  // "fp32", "bf16"
  int64_t encoder_bytes = 0;
  int64_t decoder_bytes = 0;
};

struct ModelReport {
  std::string path;
  std::string layout;  // "mistral", "huggingface", "artifact", "safetensors" (a file of something else), or empty
  std::vector<FileReport> files;
  std::optional<ModelConfig> config;
  std::vector<TensorReport> tensors;
  std::vector<DTypeReport> dtypes;
  int64_t parameters = 0;  // of the model where it could be opened, else elements of all tensors
  int64_t weight_bytes = 0;
  std::vector<CacheReport> caches;  // empty without a config
  int default_delay_ms = 0;         // 0 = unknown
  bool verified = false;            // the contents have the hash that the artifact states
  Status error;                     // why the model cannot be used; ok = it can
};

struct InspectOptions {
  std::string data_path = {};  // as OpenOptions
  bool scan_values = false;    // also look for NaN: reads the whole model
  bool verify = false;         // also compare the contents with the artifact's hash: reads the whole model
};

// Fails only where there is nothing at `path` at all.
Result<ModelReport> InspectModel(const std::string& path, const InspectOptions& options = {});

// The report as one object; keys as in the structs, errors as {"code", "message"}; what is empty or unknown is left
// out.
base::Json ToJson(const ModelReport& report);

CacheReport CacheBytes(const ModelConfig& config, const std::string& kv_type, int64_t bytes_per_value);

}  // namespace voxrt::weights
