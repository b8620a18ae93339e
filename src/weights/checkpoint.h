// Checkpoint: a validated model source (Mistral directory, Hugging Face directory, or exported artifact) as one
// canonical table of tensors under Mistral's names (docs/model.md 9.2), mapped and used in place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "quant/format.h"
#include "weights/model_config.h"

namespace voxrt::weights {

// A stored tensor, borrowed from the mapping.
struct Tensor {
  std::string stored_name;  // as in the file
  quant::DType dtype = quant::DType::kBF16;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// How rotary pairs lie in the rows of wq / wk: adjacent (Mistral) or half-split (Hugging Face).
enum class RopeRows : uint8_t { kAdjacent, kHalf };

struct OpenOptions {
  std::string data_path = {};  // overrides the place of an artifact's second file (--data-path)
  int threads = 0;             // for the one pass that scans for NaN and prefaults the mapping; 0 = one per core
  bool scan_values = true;
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};  // may be empty
};

class Checkpoint {
 public:
  // `path`: a directory, or an exported artifact file. Everything is validated before it returns: no tensor is missing,
  // unexpected, wrongly shaped, out of the file's range, overlapping or NaN.
  static Result<std::shared_ptr<const Checkpoint>> Open(const std::string& path, const OpenOptions& options);
  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const std::string& tekken_json() const = 0;
  virtual const std::string& params_json()
      const = 0;  // Mistral form; synthesised from config.json for Hugging Face sources
  virtual RopeRows rope_rows() const = 0;
  virtual std::string layout() const = 0;        // "mistral", "huggingface", "artifact"
  virtual int default_delay_tokens() const = 0;  // of an artifact; 0 = none recorded

  // All tensors under canonical names; quantized ones too (NAME, NAME.scale, ...).
  virtual const std::map<std::string, Tensor, std::less<>>& tensors() const = 0;
  virtual bool Has(std::string_view name) const = 0;

  // A linear weight [rows, cols] in whatever format it is stored. `name` must exist (validated at Open).
  virtual quant::HostLinear Linear(std::string_view name) const = 0;
  // A float tensor (norms, biases, ada matrices, convolutions) widened to fp32, flattened row-major.
  virtual std::vector<float> Values(std::string_view name) const = 0;

  virtual int64_t mapped_bytes() const = 0;
  virtual int64_t parameters() const = 0;
  // True once a mapped file was found shorter than at Open (its lost pages read as zero): sessions must fail with
  // kModelFileChanged.
  virtual bool file_changed() const = 0;
};

// Canonical names. Output head when the checkpoint has its own; else the embedding is the head (tied).
inline constexpr std::string_view kEmbeddingName = "mm_streams_embeddings.embedding_module.tok_embeddings.weight";
inline constexpr std::string_view kHeadName = "output.weight";

}  // namespace voxrt::weights
