// Opening: tell the source by what is there, let it read its files, validate the table, scan the values. The result is
// one class for all sources.
#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/check.h"
#include "base/log.h"
#include "weights/checkpoint_source.h"
#include "weights/value_scan.h"

namespace voxrt::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxJsonBytes = size_t{64} << 20;

class TableCheckpoint final : public Checkpoint {
 public:
  explicit TableCheckpoint(CheckpointParts parts) : parts_(std::move(parts)) {
    for (const TensorSpec& spec : ExpectedTensors(parts_.config)) {
      if (!Has(spec.name)) continue;
      int64_t elements = 1;
      for (int64_t dimension : spec.shape) elements *= dimension;
      parameters_ += elements;
    }
  }

  const ModelConfig& config() const override { return parts_.config; }
  const std::string& tekken_json() const override { return parts_.tekken_json; }
  const std::string& params_json() const override { return parts_.params_json; }
  RopeRows rope_rows() const override { return parts_.rope_rows; }
  std::string layout() const override { return parts_.layout; }
  int default_delay_tokens() const override { return parts_.default_delay_tokens; }
  const TensorMap& tensors() const override { return parts_.tensors; }
  bool Has(std::string_view name) const override { return parts_.tensors.find(name) != parts_.tensors.end(); }
  int64_t parameters() const override { return parameters_; }

  quant::HostLinear Linear(std::string_view name) const override;
  std::vector<float> Values(std::string_view name) const override;

  int64_t mapped_bytes() const override {
    int64_t bytes = 0;
    for (const auto& file : parts_.files) bytes += static_cast<int64_t>(file->bytes().size());
    return bytes;
  }
  bool file_changed() const override {
    for (const auto& file : parts_.files) {
      if (file->changed()) return true;
    }
    return false;
  }

 private:
  const Tensor& Find(std::string_view name) const {
    const auto found = parts_.tensors.find(name);
    VOXRT_CHECK(found != parts_.tensors.end());
    return found->second;
  }

  CheckpointParts parts_;
  int64_t parameters_ = 0;
};

quant::HostLinear TableCheckpoint::Linear(std::string_view name) const {
  const Tensor& tensor = Find(name);
  quant::HostLinear linear;
  linear.data = tensor.data;
  const auto format = parts_.formats.find(name);
  if (format == parts_.formats.end() || format->second.kind == quant::FormatKind::kFloat) {
    VOXRT_CHECK(tensor.shape.size() == 2);
    linear.format = {.kind = quant::FormatKind::kFloat, .dtype = tensor.dtype};
    linear.rows = tensor.shape[0];
    linear.cols = tensor.shape[1];
    return linear;
  }
  linear.format = format->second;
  const bool tile = linear.format.kind == quant::FormatKind::kInt4Tile;
  const std::string scale = std::string(name) + (tile ? ".scale_zero" : ".scale");
  linear.scale = reinterpret_cast<const uint16_t*>(Find(scale).data);
  linear.rows = tile ? tensor.shape[0] * 8 : tensor.shape[0];
  linear.cols = tile                                             ? tensor.shape[1] * 128
                : linear.format.kind == quant::FormatKind::kInt4 ? tensor.shape[1] * 2
                                                                 : tensor.shape[1];
  return linear;
}

std::vector<float> TableCheckpoint::Values(std::string_view name) const {
  const Tensor& tensor = Find(name);
  const size_t count = static_cast<size_t>(tensor.bytes) / quant::DTypeBytes(tensor.dtype);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = quant::LoadFloat(tensor.data, tensor.dtype, i);
  return values;
}

// A folder with the files of neither layout, or of half of one.
Status NoModelIn(const std::string& folder) {
  const auto lacks = [&](const char* has, const char* wants) {
    return Status(
        StatusCode::kInvalidModel,
        fmt::format("{} has {} but no {}; download the missing file from the model's repository", folder, has, wants));
  };
  if (FileExists(folder, kConsolidatedFile)) return lacks(kConsolidatedFile, kParamsFile);
  if (FileExists(folder, kParamsFile)) return lacks(kParamsFile, kConsolidatedFile);
  if (FileExists(folder, kConfigFile)) return lacks(kConfigFile, kModelFile);
  if (FileExists(folder, kModelFile)) return lacks(kModelFile, kConfigFile);
  if (FileExists(folder, kIndexFile)) return lacks(kIndexFile, kConfigFile);
  return Status(StatusCode::kNotFound,
                fmt::format("{} holds no model: expected {}, {} and {}, or {}, {} and {}", folder, kConsolidatedFile,
                            kParamsFile, kTekkenFile, kModelFile, kConfigFile, kTekkenFile));
}

Result<CheckpointParts> ReadDirectory(const std::string& folder, const std::string& data_path) {
  const bool mistral = FileExists(folder, kParamsFile) && FileExists(folder, kConsolidatedFile);
  const bool hugging_face =
      FileExists(folder, kConfigFile) && (FileExists(folder, kModelFile) || FileExists(folder, kIndexFile));
  if (mistral && hugging_face) {
    Log(LogLevel::kWarning, "{} holds both layouts: {} is used, {} is not", folder, kConsolidatedFile, kModelFile);
  }
  // `voxrt export --output-dir` leaves an artifact under this name.
  const std::string model = folder + "/" + kModelFile;
  if (!mistral && !hugging_face && FileExists(folder, kModelFile) && IsArtifactFile(model)) {
    return ReadArtifact(model, data_path);
  }
  if (!data_path.empty()) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("--data-path belongs to the manifest of an exported artifact; {} is a checkpoint", folder));
  }
  if (mistral) return ReadMistralDirectory(folder);
  if (hugging_face) return ReadHuggingFaceDirectory(folder);
  return NoModelIn(folder);
}

Result<CheckpointParts> ReadSource(const std::string& path, const std::string& data_path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return Status(StatusCode::kNotFound, fmt::format("{}: no such file or directory", path));
  if (fs::is_directory(status)) return ReadDirectory(path, data_path);
  return ReadArtifact(path, data_path);
}

// Codes cannot be anything but finite, and touching them only delays the start.
TensorMap FloatTensors(const TensorMap& tensors) {
  TensorMap floats;
  for (const auto& [name, tensor] : tensors) {
    using quant::DType;
    if (tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32) {
      floats.emplace(name, tensor);
    }
  }
  return floats;
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path, const OpenOptions& options) {
  VOXRT_ASSIGN_OR_RETURN(CheckpointParts parts, ReadSource(path, options.data_path));
  const Status valid = ValidateTable(parts.config, parts.tensors, parts.formats);
  if (!valid.ok()) return WithPath(path, valid);
  if (options.scan_values) {
    const Status finite = ScanValues(FloatTensors(parts.tensors), options.threads, options.progress);
    for (const auto& file : parts.files) {
      if (file->changed()) {
        return Status(StatusCode::kModelFileChanged, fmt::format("{} became shorter while it was read", file->path()));
      }
    }
    if (!finite.ok()) {
      return Status(finite.code(), fmt::format("{}: {}; the file is damaged, {} it again", path, finite.message(),
                                               parts.layout == "artifact" ? "export" : "download"));
    }
  }
  return std::shared_ptr<const Checkpoint>(std::make_shared<TableCheckpoint>(std::move(parts)));
}

Result<SafetensorsFile> OpenSafetensors(const std::string& path) {
  SafetensorsFile opened;
  VOXRT_ASSIGN_OR_RETURN(opened.file, base::MappedFile::Open(path));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(opened.file->bytes());
  if (!header.ok()) return WithPath(path, header.status());
  opened.header = *std::move(header);
  const Status layout = CheckSafetensorsLayout(opened.header, static_cast<int64_t>(opened.file->bytes().size()));
  if (!layout.ok()) return WithPath(path, layout);
  return opened;
}

Result<Tensor> TensorOf(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (!entry.dtype.has_value()) {
    return Status(StatusCode::kInvalidModel, fmt::format("{}: tensor {} is {}, expected F32, F16 or BF16",
                                                         file.file->path(), entry.name, entry.dtype_name));
  }
  Tensor tensor;
  tensor.stored_name = entry.name;
  tensor.dtype = *entry.dtype;
  tensor.shape = entry.shape;
  tensor.data = file.file->bytes().data() + file.header.data_offset + entry.begin;
  tensor.bytes = entry.end - entry.begin;
  return tensor;
}

Result<std::string> ReadFolderFile(const std::string& folder, const char* name) {
  Result<std::string> text = base::ReadSmallFile(folder + "/" + name, kMaxJsonBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kInvalidModel,
                  fmt::format("{} has no {}; download it from the model's repository", folder, name));
  }
  return text;
}

bool FileExists(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

Status WithPath(const std::string& path, const Status& status) {
  return Status(status.code(), fmt::format("{}: {}", path, status.message()));
}

}  // namespace voxrt::weights
