#include "weights/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "weights/artifact_verify.h"
#include "weights/checkpoint.h"
#include "weights/checkpoint_source.h"

namespace voxrt::weights {
namespace {

namespace fs = std::filesystem;
using base::Json;

// The safetensors files of a model path, readable or not.
std::vector<std::string> WeightFiles(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void AddTensor(ModelReport* report, TensorReport tensor) {
  const auto same = std::find_if(report->dtypes.begin(), report->dtypes.end(),
                                 [&](const DTypeReport& dtype) { return dtype.dtype == tensor.dtype; });
  DTypeReport& dtype =
      same != report->dtypes.end() ? *same : report->dtypes.emplace_back(DTypeReport{tensor.dtype, 0, 0});
  ++dtype.tensors;
  dtype.bytes += tensor.bytes;
  report->weight_bytes += tensor.bytes;
  report->tensors.push_back(std::move(tensor));
}

// transcription_delay_ms of a tekken.json, without its vocabulary; 0 = unknown.
int DefaultDelayMs(const std::string& tekken_json) {
  const Result<Json> root =
      base::ParseJsonStreaming(tekken_json, {}, "vocab", [](size_t, const Json&) { return Status(); });
  const Json* audio = root.ok() ? root->Find("audio") : nullptr;
  const Json* delay = audio != nullptr ? audio->Find("transcription_delay_ms") : nullptr;
  const std::optional<double> ms = delay != nullptr ? delay->AsDouble() : std::nullopt;
  return ms.has_value() && *ms > 0 && *ms <= 10'000 ? static_cast<int>(*ms) : 0;
}

// Whether the tensor is a part (scale) of another one.
bool IsPart(const Checkpoint& checkpoint, const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot != name.npos && name.compare(dot, 6, ".scale") == 0 &&
         checkpoint.Has(std::string_view(name).substr(0, dot));
}

void FillFromCheckpoint(const Checkpoint& checkpoint, ModelReport* report) {
  report->layout = checkpoint.layout();
  report->config = checkpoint.config();
  report->parameters = checkpoint.parameters();
  const int delay_tokens = checkpoint.default_delay_tokens();
  report->default_delay_ms = delay_tokens > 0 ? delay_tokens * 80 : DefaultDelayMs(checkpoint.tekken_json());
  std::set<std::string, std::less<>> linear;
  for (const TensorSpec& spec : ExpectedTensors(checkpoint.config())) {
    if (spec.role == TensorRole::kLinear) linear.insert(spec.name);
  }
  std::set<const std::byte*> seen;  // a head may share the embedding's bytes
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!seen.insert(tensor.data).second) continue;
    TensorReport row{name, std::string(quant::DTypeName(tensor.dtype)), tensor.shape, "", tensor.bytes};
    if (linear.count(name) != 0) {
      row.format = quant::FormatName(checkpoint.Linear(name).format);
    } else if (!IsPart(checkpoint, name)) {
      row.format = quant::FormatName({.kind = quant::FormatKind::kFloat, .dtype = tensor.dtype});
    }
    AddTensor(report, std::move(row));
  }
}

// The config alone, of a folder that cannot be opened.
void FillConfig(const std::string& folder, ModelReport* report) {
  Result<ModelConfig> config = Status(StatusCode::kNotFound, "no config");
  const bool mistral = FileExists(folder, kParamsFile);
  if (mistral) {
    const Result<std::string> text = ReadFolderFile(folder, kParamsFile);
    if (text.ok()) config = ParseMistralParams(*text);
  } else if (FileExists(folder, kConfigFile)) {
    const Result<std::string> text = ReadFolderFile(folder, kConfigFile);
    if (text.ok()) config = ParseHuggingFaceConfig(*text, "");
  }
  if (config.ok()) {
    report->config = *config;
    report->layout = mistral ? "mistral" : "huggingface";
  }
  const Result<std::string> tekken = ReadFolderFile(folder, kTekkenFile);
  if (tekken.ok()) report->default_delay_ms = DefaultDelayMs(*tekken);
}

// What the headers of the files say although the model cannot be opened.
void FillFromHeaders(const std::vector<std::string>& files, ModelReport* report) {
  for (const std::string& path : files) {
    const Result<std::shared_ptr<const base::MappedFile>> file = base::MappedFile::Open(path);
    if (!file.ok()) continue;
    const Result<SafetensorsHeader> header = ParseSafetensorsHeader((*file)->bytes());
    if (!header.ok()) continue;
    if (report->layout.empty()) report->layout = "safetensors";
    for (const SafetensorsEntry& entry : header->entries) {
      AddTensor(report, {entry.name, entry.dtype_name, entry.shape, "", entry.end - entry.begin});
      report->parameters += entry.elements();
    }
  }
}

void FillFiles(const std::vector<std::string>& files, ModelReport* report) {
  for (const std::string& path : files) {
    const Result<std::shared_ptr<const base::MappedFile>> file = base::MappedFile::Open(path);
    FileReport row{path, 0, {}};
    if (file.ok()) {
      row.bytes = static_cast<int64_t>((*file)->bytes().size());
      Result<SafetensorsHeader> header = ParseSafetensorsHeader((*file)->bytes());
      if (header.ok()) row.metadata = std::move(header->metadata);
    }
    report->files.push_back(std::move(row));
  }
}

Json ToJson(const StackConfig& stack) {
  return Json::MakeObject({{"dim", stack.dim},
                           {"layers", stack.layers},
                           {"head_dim", stack.head_dim},
                           {"hidden_dim", stack.hidden_dim},
                           {"heads", stack.heads},
                           {"kv_heads", stack.kv_heads},
                           {"rope_theta", stack.rope_theta},
                           {"window", stack.window}});
}

Json ToJson(const ModelConfig& config) {
  return Json::MakeObject({{"encoder", ToJson(config.encoder)},
                           {"decoder", ToJson(config.decoder)},
                           {"vocab_size", config.vocab_size},
                           {"ada_dim", config.ada_dim},
                           {"sample_rate", config.audio.sample_rate},
                           {"mel_bins", config.audio.mel_bins},
                           {"log_mel_max", static_cast<double>(config.audio.log_mel_max)}});
}

}  // namespace

CacheReport CacheBytes(const ModelConfig& config, const std::string& kv_type, int64_t bytes_per_value) {
  const auto bytes = [&](const StackConfig& stack, int64_t rows) {
    return int64_t{2} * stack.layers * stack.kv_heads * stack.head_dim * rows * bytes_per_value;
  };
  return {kv_type, bytes(config.encoder, config.encoder.window - 1 + config.audio.encoder_per_token),
          bytes(config.decoder, config.decoder.window)};
}

Result<ModelReport> InspectModel(const std::string& path, const InspectOptions& options) {
  ModelReport report;
  report.path = path;
  OpenOptions open;
  open.data_path = options.data_path;
  open.scan_values = options.scan_values;
  const Result<std::shared_ptr<const Checkpoint>> checkpoint = Checkpoint::Open(path, open);
  std::error_code error;
  if (!checkpoint.ok() && !fs::exists(path, error)) return checkpoint.status();
  const std::vector<std::string> files = WeightFiles(path);
  if (checkpoint.ok()) {
    FillFromCheckpoint(**checkpoint, &report);
  } else {
    report.error = checkpoint.status();
    if (fs::is_directory(path, error)) FillConfig(path, &report);
    FillFromHeaders(files, &report);
  }
  if (options.verify && report.error.ok()) {
    report.error = VerifyArtifact(path, options.data_path);
    report.verified = report.error.ok();
  }
  FillFiles(files, &report);
  if (report.config.has_value()) {
    report.caches = {CacheBytes(*report.config, "fp32", 4), CacheBytes(*report.config, "bf16", 2)};
  }
  return report;
}

Json ToJson(const ModelReport& report) {
  Json root = Json::MakeObject({{"path", report.path}, {"layout", report.layout}});
  root["parameters"] = report.parameters;
  root["weight_bytes"] = report.weight_bytes;
  root["default_delay_ms"] = report.default_delay_ms;
  if (report.config.has_value()) root["config"] = ToJson(*report.config);
  if (report.verified) root["verified"] = true;
  for (const CacheReport& cache : report.caches) {
    root["caches"].Append(
        Json::MakeObject({{"kv_type", cache.kv_type},
                          {"encoder_bytes", cache.encoder_bytes},
                          {"decoder_bytes", cache.decoder_bytes},
                          {"session_bytes", cache.encoder_bytes + cache.decoder_bytes},
                          {"total_bytes", report.weight_bytes + cache.encoder_bytes + cache.decoder_bytes}}));
  }
  root["files"] = Json::Array();
  for (const FileReport& file : report.files) {
    Json metadata = Json::MakeObject();
    for (const auto& [key, value] : file.metadata) metadata[key] = value;
    root["files"].Append(
        Json::MakeObject({{"path", file.path}, {"bytes", file.bytes}, {"metadata", std::move(metadata)}}));
  }
  for (const DTypeReport& dtype : report.dtypes) {
    root["dtypes"].Append(
        Json::MakeObject({{"dtype", dtype.dtype}, {"tensors", dtype.tensors}, {"bytes", dtype.bytes}}));
  }
  for (const TensorReport& tensor : report.tensors) {
    root["tensors"].Append(Json::MakeObject({{"name", tensor.name},
                                             {"dtype", tensor.dtype},
                                             {"shape", Json::Array(tensor.shape.begin(), tensor.shape.end())},
                                             {"format", tensor.format},
                                             {"bytes", tensor.bytes}}));
  }
  if (!report.error.ok()) {
    root["error"] =
        Json::MakeObject({{"code", StatusCodeName(report.error.code())}, {"message", report.error.message()}});
  }
  return root;
}

}  // namespace voxrt::weights
