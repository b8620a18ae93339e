#include "weights/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/json.h"

namespace voxrt::weights {
namespace {

using quant::DType;
using quant::FormatKind;

constexpr char kModule[] = "mm_streams_embeddings.embedding_module.";

Status Bad(std::string message) { return Status(StatusCode::kInvalidModel, std::move(message)); }

// Collects specs under a prefix.
class SpecList {
 public:
  explicit SpecList(std::vector<TensorSpec>* specs) : specs_(specs) {}

  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }
  void Linear(std::string_view name, int64_t rows, int64_t cols) { Add(name, {rows, cols}, TensorRole::kLinear); }
  void Values(std::string_view name, std::vector<int64_t> shape) { Add(name, std::move(shape), TensorRole::kValues); }

 private:
  void Add(std::string_view name, std::vector<int64_t> shape, TensorRole role) {
    specs_->push_back({prefix_ + std::string(name), std::move(shape), role, false});
  }

  std::vector<TensorSpec>* specs_;
  std::string prefix_;
};

void AddEncoder(const ModelConfig& config, SpecList* list) {
  const StackConfig& stack = config.encoder;
  const std::string encoder = std::string(kModule) + "whisper_encoder.";
  const int64_t width = int64_t{stack.heads} * stack.head_dim;
  list->SetPrefix(encoder + "conv_layers.");
  list->Values("0.conv.weight", {stack.dim, config.audio.mel_bins, 3});
  list->Values("0.conv.bias", {stack.dim});
  list->Values("1.conv.weight", {stack.dim, stack.dim, 3});
  list->Values("1.conv.bias", {stack.dim});
  for (int layer = 0; layer < stack.layers; ++layer) {
    list->SetPrefix(fmt::format("{}transformer.layers.{}.", encoder, layer));
    list->Values("attention_norm.weight", {stack.dim});
    list->Linear("attention.wq.weight", width, stack.dim);
    list->Values("attention.wq.bias", {width});
    list->Linear("attention.wk.weight", width, stack.dim);
    list->Linear("attention.wv.weight", width, stack.dim);
    list->Values("attention.wv.bias", {width});
    list->Linear("attention.wo.weight", stack.dim, width);
    list->Values("attention.wo.bias", {stack.dim});
    list->Values("ffn_norm.weight", {stack.dim});
    list->Linear("feed_forward.w1.weight", stack.hidden_dim, stack.dim);
    list->Linear("feed_forward.w3.weight", stack.hidden_dim, stack.dim);
    list->Linear("feed_forward.w2.weight", stack.dim, stack.hidden_dim);
    list->Values("feed_forward.w2.bias", {stack.dim});
  }
  list->SetPrefix(encoder);
  list->Values("transformer.norm.weight", {stack.dim});
  list->SetPrefix(std::string(kModule) + "audio_language_projection.");
  list->Linear("0.weight", config.decoder.dim, stack.dim * config.audio.encoder_per_token);
  list->Linear("2.weight", config.decoder.dim, config.decoder.dim);
}

void AddDecoder(const ModelConfig& config, SpecList* list) {
  const StackConfig& stack = config.decoder;
  const int64_t width = int64_t{stack.heads} * stack.head_dim;
  const int64_t kv_width = int64_t{stack.kv_heads} * stack.head_dim;
  list->SetPrefix("");
  list->Linear(kEmbeddingName, config.vocab_size, stack.dim);
  for (int layer = 0; layer < stack.layers; ++layer) {
    list->SetPrefix(fmt::format("layers.{}.", layer));
    list->Values("attention_norm.weight", {stack.dim});
    list->Linear("attention.wq.weight", width, stack.dim);
    list->Linear("attention.wk.weight", kv_width, stack.dim);
    list->Linear("attention.wv.weight", kv_width, stack.dim);
    list->Linear("attention.wo.weight", stack.dim, width);
    list->Values("ffn_norm.weight", {stack.dim});
    list->Values("ada_rms_norm_t_cond.0.weight", {config.ada_dim, stack.dim});
    list->Values("ada_rms_norm_t_cond.2.weight", {stack.dim, config.ada_dim});
    list->Linear("feed_forward.w1.weight", stack.hidden_dim, stack.dim);
    list->Linear("feed_forward.w3.weight", stack.hidden_dim, stack.dim);
    list->Linear("feed_forward.w2.weight", stack.dim, stack.hidden_dim);
  }
  list->SetPrefix("");
  list->Values("norm.weight", {stack.dim});
}

std::string ShapeText(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

Status CheckAlignment(const std::string& name, const Tensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.data) % quant::DTypeBytes(tensor.dtype) == 0) return Status();
  return Bad(fmt::format(
      "tensor {} does not begin at a multiple of its element size; save the file again with a current safetensors",
      name));
}

Status CheckFloats(const TensorSpec& spec, const Tensor& tensor) {
  if (!IsFloat(tensor.dtype)) {
    return Bad(fmt::format("tensor {} is {}, expected F32, F16 or BF16", spec.name, quant::DTypeName(tensor.dtype)));
  }
  if (tensor.shape != spec.shape) {
    return Bad(fmt::format("tensor {} has shape {}, expected {} by the model's config", spec.name,
                           ShapeText(tensor.shape), ShapeText(spec.shape)));
  }
  return CheckAlignment(spec.name, tensor);
}

Status CheckQuantized(const TensorSpec& spec, const quant::Format& format, const TensorMap& tensors,
                      std::set<std::string, std::less<>>* used) {
  if (spec.role != TensorRole::kLinear) {
    return Bad(
        fmt::format("tensor {} is stored as {}, expected F32, F16 or BF16", spec.name, quant::FormatName(format)));
  }
  const int64_t rows = spec.shape[0];
  const int64_t cols = spec.shape[1];
  VOXRT_RETURN_IF_ERROR(CheckFormat(spec.name, rows, cols, format));
  for (const StoredPart& part : StoredParts(spec.name, rows, cols, format)) {
    const auto found = tensors.find(part.name);
    if (found == tensors.end()) return Bad(fmt::format("tensor {} is missing", part.name));
    const Tensor& tensor = found->second;
    if (tensor.dtype != part.dtype || tensor.shape != part.shape) {
      return Bad(fmt::format("tensor {} is {} {}, expected {} {} for {}", part.name, quant::DTypeName(tensor.dtype),
                             ShapeText(tensor.shape), quant::DTypeName(part.dtype), ShapeText(part.shape),
                             quant::FormatName(format)));
    }
    VOXRT_RETURN_IF_ERROR(CheckAlignment(part.name, tensor));
    used->insert(part.name);
  }
  return Status();
}

// "tensor X is missing", and how many others are.
Status MissingTensors(const std::vector<std::string>& names) {
  if (names.empty()) return Status();
  const std::string others = names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "";
  return Bad(fmt::format("tensor {}{} missing; the file is incomplete or of another model", names[0],
                         names.size() > 1 ? others + " are" : " is"));
}

}  // namespace

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  SpecList list(&specs);
  AddEncoder(config, &list);
  AddDecoder(config, &list);
  specs.push_back({std::string(kHeadName), {config.vocab_size, config.decoder.dim}, TensorRole::kLinear, true});
  return specs;
}

std::vector<StoredPart> StoredParts(const std::string& name, int64_t rows, int64_t cols, const quant::Format& format) {
  const int64_t groups = format.group == 0 ? 1 : cols / format.group;
  switch (format.kind) {
    case FormatKind::kFloat:
      return {{name, format.dtype, {rows, cols}}};
    case FormatKind::kInt4:
      return {{name, DType::kU8, {rows, cols / 2}}, {name + ".scale", DType::kBF16, {rows, groups}}};
    case FormatKind::kInt8:
      return {{name, DType::kI8, {rows, cols}}, {name + ".scale", DType::kBF16, {rows, groups}}};
    case FormatKind::kInt4Tile:
      return {{name, DType::kI32, {rows / 8, cols / 128, 32, 4}},
              {name + ".scale_zero", DType::kBF16, {groups, rows, 2}}};
  }
  return {};
}

Status CheckFormat(const std::string& name, int64_t rows, int64_t cols, const quant::Format& format) {
  const auto refuse = [&](std::string_view reason) {
    return Bad(fmt::format("tensor {} [{}, {}] cannot be {}: {}", name, rows, cols, quant::FormatName(format), reason));
  };
  if (format.kind == FormatKind::kFloat) return IsFloat(format.dtype) ? Status() : refuse("not a float type");
  const int group = format.group;
  const bool per_row = group == 0 && format.kind == FormatKind::kInt8;
  if (!per_row && group != 32 && group != 64 && group != 128 && group != 256) {
    return refuse("the group must be 32, 64, 128 or 256");
  }
  if (!per_row && cols % group != 0) return refuse("its columns are no multiple of the group");
  if (format.kind == FormatKind::kInt4Tile && (rows % 8 != 0 || cols % 128 != 0)) {
    return refuse("a tile holds 8 rows and 128 columns");
  }
  return Status();
}

Status ValidateTable(const ModelConfig& config, const TensorMap& tensors, const FormatMap& formats) {
  std::set<std::string, std::less<>> used;
  std::vector<std::string> missing;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) {
      if (!spec.optional) missing.push_back(spec.name);
      continue;
    }
    const auto format = formats.find(spec.name);
    if (format != formats.end() && format->second.kind != FormatKind::kFloat) {
      VOXRT_RETURN_IF_ERROR(CheckQuantized(spec, format->second, tensors, &used));
      continue;
    }
    VOXRT_RETURN_IF_ERROR(CheckFloats(spec, found->second));
    used.insert(spec.name);
  }
  VOXRT_RETURN_IF_ERROR(MissingTensors(missing));
  for (const auto& [name, tensor] : tensors) {
    if (used.count(name) != 0) continue;
    return Bad(fmt::format("tensor {} is not one of this model's; the file is of another model",
                           base::QuoteForMessage(tensor.stored_name)));
  }
  return Status();
}

}  // namespace voxrt::weights
