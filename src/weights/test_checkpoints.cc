#include "weights/test_checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/json.h"
#include "support/root.h"
#include "weights/checkpoint_source.h"
#include "weights/safetensors_writer.h"

namespace voxrt::weights {
namespace {

using base::Json;

constexpr char kModule[] = "mm_streams_embeddings.embedding_module.";

void ReplaceFirst(std::string* text, std::string_view from, std::string_view to) {
  const size_t at = text->find(from);
  if (at != text->npos) text->replace(at, from.size(), to);
}

// Mistral name -> (part, name inside the part) of transformers; written independently of the code under test.
std::pair<std::string, std::string> HuggingFaceName(std::string name) {
  const std::pair<const char*, const char*> kCommon[] = {
      {"feed_forward.w1", "mlp.gate_proj"}, {"feed_forward.w2", "mlp.down_proj"}, {"feed_forward.w3", "mlp.up_proj"},
      {"attention.wq", "self_attn.q_proj"}, {"attention.wk", "self_attn.k_proj"}, {"attention.wv", "self_attn.v_proj"},
      {"attention.wo", "self_attn.o_proj"}};
  const std::string encoder = std::string(kModule) + "whisper_encoder.";
  if (name.starts_with(encoder)) {
    name = name.substr(encoder.size());
    ReplaceFirst(&name, "conv_layers.0.conv", "embedder.conv1");
    ReplaceFirst(&name, "conv_layers.1.conv", "embedder.conv2");
    ReplaceFirst(&name, "transformer.", "");
    ReplaceFirst(&name, "attention_norm", "self_attn_layer_norm");
    ReplaceFirst(&name, "ffn_norm", "final_layer_norm");
    for (const auto& [from, to] : kCommon) ReplaceFirst(&name, from, to);
    return {"audio_tower", name};
  }
  if (name.find("audio_language_projection.0") != name.npos) return {"multi_modal_projector", "linear_1.weight"};
  if (name.find("audio_language_projection.2") != name.npos) return {"multi_modal_projector", "linear_2.weight"};
  if (name.find("tok_embeddings") != name.npos) return {"language_model", "embed_tokens.weight"};
  ReplaceFirst(&name, "attention_norm", "input_layernorm");
  ReplaceFirst(&name, "ffn_norm", "post_attention_layernorm");
  ReplaceFirst(&name, "ada_rms_norm_t_cond.0", "ada_rms_norm.linear1");
  ReplaceFirst(&name, "ada_rms_norm_t_cond.2", "ada_rms_norm.linear2");
  for (const auto& [from, to] : kCommon) ReplaceFirst(&name, from, to);
  return {"language_model", name};
}

std::string Prefixed(PrefixStyle style, const std::string& part, const std::string& name) {
  const std::string inner = part == "language_model" && style != PrefixStyle::kNew ? ".model." : ".";
  const char* outer = style == PrefixStyle::kOld ? "" : style == PrefixStyle::kNew ? "model." : "model.model.";
  return outer + part + inner + name;
}

// to_half: row 2i + r of a head goes to row r * D/2 + i; else back.
std::string PermuteRows(const std::string& data, int64_t rows, int64_t heads, bool to_half) {
  const auto row_bytes = data.size() / static_cast<size_t>(rows);
  const int64_t dim = rows / heads;
  std::string out(data.size(), '\0');
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % dim;
    const int64_t half = row - in_head + (in_head % 2) * (dim / 2) + in_head / 2;
    const int64_t from = to_half ? row : half;
    const int64_t to = to_half ? half : row;
    std::copy_n(data.data() + static_cast<size_t>(from) * row_bytes, row_bytes,
                out.data() + static_cast<size_t>(to) * row_bytes);
  }
  return out;
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "voxrt_weights_test.XXXXXX").string();
  VOXRT_CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string TinyFolder() { return test::Root() + "/tests/golden/tiny"; }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  VOXRT_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  VOXRT_CHECK(file.good());
}

std::vector<StoredTensor> ReadTensors(const std::string& safetensors_path) {
  const SafetensorsFile file = *OpenSafetensors(safetensors_path);
  std::vector<StoredTensor> tensors;
  for (const SafetensorsEntry& entry : file.header.entries) {
    const Tensor tensor = *TensorOf(file, entry);
    tensors.push_back({entry.name, tensor.dtype, tensor.shape,
                       std::string(reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes))});
  }
  return tensors;
}

void WriteTensors(const std::string& safetensors_path, const std::vector<StoredTensor>& tensors) {
  std::vector<TensorPlan> plans;
  for (const StoredTensor& tensor : tensors) plans.push_back({tensor.name, tensor.dtype, tensor.shape});
  auto writer = *SafetensorsWriter::Create(safetensors_path, plans, {.metadata = {{"format", "pt"}}, .sync = false});
  for (size_t i = 0; i < tensors.size(); ++i) {
    VOXRT_CHECK(writer->Write(i, 0, std::as_bytes(std::span(tensors[i].data))).ok());
  }
  VOXRT_CHECK(writer->Finish().ok());
}

StoredTensor* FindTensor(std::vector<StoredTensor>* tensors, const std::string& name) {
  for (StoredTensor& tensor : *tensors) {
    if (tensor.name == name) return &tensor;
  }
  VOXRT_CHECK(false);
}

void WriteMistralFolder(const TempFolder& folder, const std::function<void(std::vector<StoredTensor>*)>& edit) {
  for (const char* name : {kParamsFile, kTekkenFile}) WriteAll(folder / name, ReadAll(TinyFolder() + "/" + name));
  std::vector<StoredTensor> tensors = ReadTensors(TinyFolder() + "/" + kConsolidatedFile);
  if (edit) edit(&tensors);
  WriteTensors(folder / kConsolidatedFile, tensors);
}

std::vector<StoredTensor> HuggingFaceTensors(PrefixStyle style) {
  const ModelConfig config = *ParseMistralParams(ReadAll(TinyFolder() + "/" + kParamsFile));
  std::vector<StoredTensor> tensors = ReadTensors(TinyFolder() + "/" + kConsolidatedFile);
  StoredTensor head;
  for (StoredTensor& tensor : tensors) {
    const auto [part, name] = HuggingFaceName(tensor.name);
    const bool query = name.find("q_proj") != name.npos;
    if (query || name.find("k_proj") != name.npos) {
      const int heads = part == "audio_tower" ? config.encoder.heads
                        : query               ? config.decoder.heads
                                              : config.decoder.kv_heads;
      tensor.data = PermuteRows(tensor.data, tensor.shape[0], heads, true);
    }
    tensor.name = Prefixed(style, part, name);
    if (name == "embed_tokens.weight") head = tensor;
  }
  head.name = style == PrefixStyle::kOld ? "language_model.lm_head.weight" : "lm_head.weight";
  tensors.push_back(head);
  return tensors;
}

void WriteHuggingFaceFolder(const TempFolder& folder, const std::vector<StoredTensor>& tensors, int shards) {
  const ModelConfig config = *ParseMistralParams(ReadAll(TinyFolder() + "/" + kParamsFile));
  WriteAll(folder / kConfigFile, WriteHuggingFaceConfig(config));
  WriteAll(folder / kTekkenFile, ReadAll(TinyFolder() + "/" + kTekkenFile));
  if (shards == 1) {
    WriteTensors(folder / kModelFile, tensors);
    return;
  }
  Json map = Json::MakeObject();
  for (int shard = 0; shard < shards; ++shard) {
    const std::string name = "model-" + std::to_string(shard + 1) + ".safetensors";
    std::vector<StoredTensor> part;
    for (size_t i = static_cast<size_t>(shard); i < tensors.size(); i += static_cast<size_t>(shards)) {
      part.push_back(tensors[i]);
      map[tensors[i].name] = name;
    }
    WriteTensors(folder / name, part);
  }
  WriteAll(
      folder / kIndexFile,
      Json::MakeObject({{"metadata", Json::MakeObject({{"total_size", 1}})}, {"weight_map", std::move(map)}}).Dump());
}

std::string RowsToAdjacent(const std::string& data, int64_t rows, int64_t heads) {
  return PermuteRows(data, rows, heads, false);
}

}  // namespace voxrt::weights
