// The canonical tensor table: which tensors a model of a given config consists of, under Mistral's names
// (docs/model.md 9.2), and the one validation that every model source goes through before anything is used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "quant/format.h"
#include "weights/checkpoint.h"
#include "weights/model_config.h"

namespace voxrt::weights {

enum class TensorRole : uint8_t {
  kLinear,  // [rows, cols] of a matrix product or the embedding: may be quantized
  kValues,  // norms, biases, convolutions, delay MLP: F32, F16 or BF16
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  TensorRole role = TensorRole::kValues;
  bool optional = false;
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;
// Formats of the quantized tensors by name; what is not listed is stored as floats.
using FormatMap = std::map<std::string, quant::Format, std::less<>>;

// Every tensor of a model, in the order of computation. The only optional one is the output head.
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

// The tensors that a linear weight [rows, cols] is stored as in `format`: NAME alone, or NAME with NAME.scale /
// NAME.scale_zero (docs/model.md 12.7), with their types and shapes.
struct StoredPart {
  std::string name;
  quant::DType dtype = quant::DType::kBF16;
  std::vector<int64_t> shape;
};
std::vector<StoredPart> StoredParts(const std::string& name, int64_t rows, int64_t cols, const quant::Format& format);
// Whether the format can hold [rows, cols] at all; the message names the tensor and the reason.
Status CheckFormat(const std::string& name, int64_t rows, int64_t cols, const quant::Format& format);

// No tensor is missing, unexpected, of another type or shape than the config implies, or badly aligned.
Status ValidateTable(const ModelConfig& config, const TensorMap& tensors, const FormatMap& formats);

}  // namespace voxrt::weights
