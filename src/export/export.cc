// Order of work. The file's order is by alignment (scales before codes), the work's order is the plan's; every part
// knows its place, so parts are written where they belong as they are made. A part's SHA-256 is taken from memory at
// that moment; the hash of the contents combines them in file order. The source's own hash is taken by one more thread
// on the side.
#include "export/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/sha.h"
#include "base/thread_pool.h"
#include "quant/encode.h"
#include "weights/artifact_metadata.h"
#include "weights/checkpoint_source.h"
#include "weights/safetensors_writer.h"

namespace voxrt::exporter {
namespace {

namespace fs = std::filesystem;
using quant::DType;
using quant::FormatKind;
using weights::ArtifactMetadata;
using weights::TensorPlan;

constexpr int64_t kCopyBytes = int64_t{8} << 20;

// Row of a half-split source that becomes adjacent row `row`: pairs (i, i + D/2) of a head come to lie side by side.
int64_t HalfSplitRow(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  return row - in_head + (in_head % 2) * (head_dim / 2) + in_head / 2;
}

// The stored parts of the artifact in file order, and where each is.
struct FileLayout {
  std::vector<TensorPlan> tensors;
  std::map<std::string, size_t> index;

  void Add(std::string name, DType dtype, std::vector<int64_t> shape) {
    tensors.push_back({std::move(name), dtype, std::move(shape)});
  }
  void Close() {
    for (size_t i = 0; i < tensors.size(); ++i) index.emplace(tensors[i].name, i);
  }
};

void AddByteFiles(const weights::Checkpoint& checkpoint, FileLayout* layout) {
  layout->Add(weights::kArtifactParams, DType::kU8, {static_cast<int64_t>(checkpoint.params_json().size())});
  layout->Add(weights::kArtifactTekken, DType::kU8, {static_cast<int64_t>(checkpoint.tekken_json().size())});
}

FileLayout WeightLayout(const ExportPlan& plan) {
  FileLayout layout;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.format.kind == FormatKind::kFloat) {
      layout.Add(tensor.name, tensor.format.dtype, tensor.shape);
      continue;
    }
    for (auto& part : weights::StoredParts(tensor.name, tensor.shape[0], tensor.shape[1], tensor.format)) {
      layout.Add(std::move(part.name), part.dtype, std::move(part.shape));
    }
  }
  std::stable_sort(layout.tensors.begin(), layout.tensors.end(), [](const TensorPlan& a, const TensorPlan& b) {
    return quant::DTypeBytes(a.dtype) > quant::DTypeBytes(b.dtype);
  });
  return layout;
}

// Writes parts and remembers their hashes.
class ArtifactFile {
 public:
  static Result<ArtifactFile> Create(const std::string& path, FileLayout layout, const ArtifactMetadata& metadata) {
    ArtifactFile file;
    layout.Add(weights::kArtifactHash, DType::kU8, {weights::kArtifactHashBytes});
    layout.Close();
    file.layout_ = std::move(layout);
    file.hashes_.resize(file.layout_.tensors.size());
    VOXRT_ASSIGN_OR_RETURN(
        file.writer_, weights::SafetensorsWriter::Create(path, file.layout_.tensors,
                                                         {.metadata = WriteArtifactMetadata(metadata), .sync = true}));
    return file;
  }

  // A whole part.
  Status Write(const std::string& name, std::span<const std::byte> bytes) {
    const size_t index = IndexOf(name);
    hashes_[index] = base::Sha256Hex(bytes);
    return writer_->Write(index, 0, bytes);
  }

  // A part in pieces from its beginning.
  class Pieces {
   public:
    Pieces(ArtifactFile* file, const std::string& name) : file_(file), index_(file->IndexOf(name)) {}
    Status Write(std::span<const std::byte> bytes) {
      sha_.Update(bytes);
      const int64_t at = offset_;
      offset_ += static_cast<int64_t>(bytes.size());
      return file_->writer_->Write(index_, at, bytes);
    }
    void Finish() { file_->hashes_[index_] = sha_.FinishHex(); }

   private:
    ArtifactFile* file_;
    size_t index_;
    int64_t offset_ = 0;
    base::Sha256 sha_;
  };

  Status Finish(std::string* content_sha256) {
    hashes_.pop_back();  // the place of the hash itself
    *content_sha256 = weights::CombineTensorHashes(hashes_);
    VOXRT_RETURN_IF_ERROR(writer_->Write(hashes_.size(), 0, std::as_bytes(std::span(*content_sha256))));
    return writer_->Finish();
  }

  Status ReplaceInHeader(const std::string& from, const std::string& to) { return writer_->ReplaceInHeader(from, to); }
  int64_t bytes() const { return writer_->file_bytes(); }

 private:
  size_t IndexOf(const std::string& name) const {
    const auto found = layout_.index.find(name);
    VOXRT_CHECK(found != layout_.index.end());
    return found->second;
  }

  FileLayout layout_;
  std::vector<std::string> hashes_;
  std::unique_ptr<weights::SafetensorsWriter> writer_;
};

Status WriteByteFiles(const weights::Checkpoint& checkpoint, ArtifactFile* file) {
  VOXRT_RETURN_IF_ERROR(file->Write(weights::kArtifactParams, std::as_bytes(std::span(checkpoint.params_json()))));
  return file->Write(weights::kArtifactTekken, std::as_bytes(std::span(checkpoint.tekken_json())));
}

// The files that a checkpoint consists of (an artifact that lies beside them is none), in order of their names; hashes
// still empty.
Result<std::vector<weights::ArtifactSource>> ListSources(const std::string& folder) {
  std::vector<weights::ArtifactSource> sources;
  std::error_code error;
  const bool mistral = fs::exists(fs::path(folder) / "consolidated.safetensors", error);
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool weights_file =
        mistral ? name == "consolidated.safetensors"
                : name.starts_with("model") && name.ends_with(".safetensors") && !weights::IsArtifactFile(entry.path());
    const bool other = name == "tekken.json" || name == (mistral ? "params.json" : "config.json") ||
                       (!mistral && name == "processor_config.json");
    if (weights_file || other) sources.push_back({name, static_cast<int64_t>(entry.file_size(error)), ""});
  }
  if (error) return Status(StatusCode::kIo, fmt::format("cannot list {}: {}", folder, error.message()));
  std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) { return a.file < b.file; });
  return sources;
}

// Hashes the source's files on a thread of its own; an export that fails or is cancelled does not wait for the rest.
class SourceHasher {
 public:
  SourceHasher(std::string folder, std::vector<weights::ArtifactSource> sources)
      : hashes_(std::async(std::launch::async, [this, folder = std::move(folder), sources = std::move(sources)] {
          return Hash(folder, sources);
        })) {}
  ~SourceHasher() { stop_ = true; }
  SourceHasher(const SourceHasher&) = delete;
  SourceHasher& operator=(const SourceHasher&) = delete;

  Result<std::vector<std::string>> Wait() { return hashes_.get(); }

 private:
  Result<std::vector<std::string>> Hash(const std::string& folder,
                                        const std::vector<weights::ArtifactSource>& sources) const {
    std::vector<std::string> hashes;
    for (const weights::ArtifactSource& source : sources) {
      VOXRT_ASSIGN_OR_RETURN(const auto file, base::MappedFile::Open((fs::path(folder) / source.file).string()));
      base::Sha256 sha;
      constexpr size_t kPieceBytes = size_t{16} << 20;
      for (auto rest = file->bytes(); !rest.empty(); rest = rest.subspan(std::min(kPieceBytes, rest.size()))) {
        if (stop_) return Status(StatusCode::kCancelled, "cancelled");
        sha.Update(rest.first(std::min(kPieceBytes, rest.size())));
      }
      hashes.push_back(sha.FinishHex());
      if (file->changed())
        return Status(StatusCode::kModelFileChanged, fmt::format("{} became shorter while it was read", file->path()));
    }
    return hashes;
  }

  std::atomic<bool> stop_{false};
  std::future<Result<std::vector<std::string>>> hashes_;  // its destructor waits
};

// Stands in the header for the hash of source `index` until it is known.
std::string Placeholder(size_t index) { return fmt::format("{:0>{}}", index, weights::kArtifactHashBytes); }

class Exporter {
 public:
  Exporter(const ExportOptions& options, const ExportPlan& plan, const weights::Checkpoint& checkpoint,
           const Progress& progress)
      : options_(options), plan_(plan), checkpoint_(checkpoint), progress_(progress), pool_(options.threads) {}

  Status WriteTensors(ArtifactFile* file, ExportReport* report) {
    const auto bytes_of = [&](const PlannedTensor& tensor) {
      return checkpoint_.tensors().find(tensor.source)->second.bytes;
    };
    int64_t total = 0;  // of work: a head that is made from the embedding counts again
    for (const PlannedTensor& tensor : plan_.tensors) total += bytes_of(tensor);
    int64_t done = 0;
    for (const PlannedTensor& tensor : plan_.tensors) {
      TensorReport line;
      line.name = tensor.name;
      line.format = quant::FormatName(tensor.format);
      line.source_bytes = bytes_of(tensor);
      const Status status =
          tensor.format.kind == FormatKind::kFloat ? Copy(tensor, file, &line) : Quantize(tensor, file, &line);
      if (!status.ok()) return Status(status.code(), fmt::format("{}: {}", tensor.name, status.message()));
      done += line.source_bytes;
      report->tensors.push_back(std::move(line));
      if (progress_ && !progress_(done, total)) return Status(StatusCode::kCancelled, "cancelled");
    }
    if (checkpoint_.file_changed()) {  // parts of it would have been made from zeros
      return Status(StatusCode::kModelFileChanged,
                    fmt::format("{} became shorter while it was exported", options_.model_path));
    }
    return {};
  }

 private:
  Status Quantize(const PlannedTensor& tensor, ArtifactFile* file, TensorReport* line) {
    const int64_t head_dim = tensor.rope_head_dim;
    Result<quant::EncodedLinear> encoded =
        quant::EncodeLinear(checkpoint_.Linear(tensor.source), tensor.format, options_.search, pool_,
                            [head_dim](int64_t row) { return head_dim > 0 ? HalfSplitRow(row, head_dim) : row; });
    if (!encoded.ok()) return encoded.status();
    const auto parts = weights::StoredParts(tensor.name, tensor.shape[0], tensor.shape[1], tensor.format);
    const auto scale = std::as_bytes(std::span(encoded->scale));
    VOXRT_RETURN_IF_ERROR(file->Write(parts[1].name, scale));
    VOXRT_RETURN_IF_ERROR(file->Write(parts[0].name, encoded->data));
    line->bytes = static_cast<int64_t>(scale.size() + encoded->data.size());
    line->relative_rms = encoded->error.relative_rms;
    line->max_abs = encoded->error.max_abs;
    line->max_value = encoded->error.max_value;
    return {};
  }

  // Float tensors, in pieces of a few megabytes: converted to the stored type, rows reordered where the source is
  // half-split.
  Status Copy(const PlannedTensor& tensor, ArtifactFile* file, TensorReport* line) {
    const weights::Tensor& source = checkpoint_.tensors().find(tensor.source)->second;
    const int64_t rows = tensor.rows();
    const int64_t row_elements = rows > 0 ? tensor.elements() / rows : 0;
    const auto source_row_bytes = static_cast<size_t>(row_elements) * quant::DTypeBytes(source.dtype);
    const size_t row_bytes = static_cast<size_t>(row_elements) * quant::DTypeBytes(tensor.format.dtype);
    const int64_t chunk = std::max<int64_t>(1, kCopyBytes / static_cast<int64_t>(std::max<size_t>(1, row_bytes)));
    std::vector<std::byte> buffer;
    ArtifactFile::Pieces pieces(file, tensor.name);
    for (int64_t first = 0; first < rows; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      buffer.resize(row_bytes * static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t from = tensor.rope_head_dim > 0 ? HalfSplitRow(first + i, tensor.rope_head_dim) : first + i;
        Convert(source.data + static_cast<size_t>(from) * source_row_bytes, source.dtype, row_elements,
                tensor.format.dtype, buffer.data() + static_cast<size_t>(i) * row_bytes);
      }
      VOXRT_RETURN_IF_ERROR(pieces.Write(buffer));
    }
    pieces.Finish();
    line->bytes = static_cast<int64_t>(row_bytes) * rows;
    return {};
  }

  static void Convert(const std::byte* from, DType from_type, int64_t count, DType to_type, std::byte* to) {
    if (from_type == to_type) {
      std::memcpy(to, from, static_cast<size_t>(count) * quant::DTypeBytes(to_type));
      return;
    }
    VOXRT_CHECK(to_type == DType::kBF16);
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t bits = quant::F32ToBF16(quant::LoadFloat(from, from_type, static_cast<size_t>(i)));
      std::memcpy(to + 2 * i, &bits, sizeof(bits));
    }
  }

  const ExportOptions& options_;
  const ExportPlan& plan_;
  const weights::Checkpoint& checkpoint_;
  const Progress& progress_;
  base::ThreadPool pool_;
};

ArtifactMetadata MakeMetadata(const ExportOptions& options, const ExportPlan& plan, const std::string& producer) {
  ArtifactMetadata metadata;
  metadata.producer = producer;
  metadata.command = CommandOf(options);
  metadata.quantizer = quant::SearchName(options.search);
  metadata.formats = plan.formats;
  metadata.delay_tokens = options.delay_tokens;
  metadata.encoder_window = options.max_enc_len.value_or(0);
  metadata.decoder_window = options.sliding_window.value_or(0);
  metadata.max_seq_len = options.max_seq_len;
  metadata.streaming = options.streaming;
  metadata.backend = options.backend;
  metadata.dtype = options.dtype;
  return metadata;
}

// What is known only at the end has places in the header: the hashes of the sources, of a manifest also the data's.
Status FillPlaceholders(const std::vector<std::string>& hashes, ArtifactFile* file) {
  for (size_t i = 0; i < hashes.size(); ++i) VOXRT_RETURN_IF_ERROR(file->ReplaceInHeader(Placeholder(i), hashes[i]));
  return {};
}

// Everything in one file.
Status WriteWhole(const ExportOptions& options, const weights::Checkpoint& checkpoint, const ArtifactMetadata& metadata,
                  FileLayout layout, SourceHasher* hasher, Exporter* exporter, ExportReport* report) {
  AddByteFiles(checkpoint, &layout);
  VOXRT_ASSIGN_OR_RETURN(ArtifactFile file, ArtifactFile::Create(options.output_path, std::move(layout), metadata));
  VOXRT_RETURN_IF_ERROR(exporter->WriteTensors(&file, report));
  VOXRT_RETURN_IF_ERROR(WriteByteFiles(checkpoint, &file));
  VOXRT_ASSIGN_OR_RETURN(const std::vector<std::string> hashes, hasher->Wait());
  VOXRT_RETURN_IF_ERROR(FillPlaceholders(hashes, &file));
  VOXRT_RETURN_IF_ERROR(file.Finish(&report->sha256));
  report->artifact_bytes = file.bytes();
  return {};
}

// Both files are begun before any work, so that a place where one cannot be is found at once and no other export mixes
// in; the manifest, which names the hash of the weights, appears last.
Status WritePair(const ExportOptions& options, const weights::Checkpoint& checkpoint, const ArtifactMetadata& common,
                 FileLayout layout, SourceHasher* hasher, Exporter* exporter, ExportReport* report) {
  ArtifactMetadata metadata = common;
  metadata.part = ArtifactMetadata::Part::kData;
  VOXRT_ASSIGN_OR_RETURN(ArtifactFile data, ArtifactFile::Create(options.data_path, std::move(layout), metadata));
  metadata.part = ArtifactMetadata::Part::kManifest;
  metadata.data = weights::ArtifactData{fs::path(options.data_path).filename().string(), data.bytes(),
                                        Placeholder(metadata.sources.size())};
  FileLayout small;
  AddByteFiles(checkpoint, &small);
  VOXRT_ASSIGN_OR_RETURN(ArtifactFile manifest, ArtifactFile::Create(options.output_path, std::move(small), metadata));
  VOXRT_RETURN_IF_ERROR(exporter->WriteTensors(&data, report));
  VOXRT_RETURN_IF_ERROR(WriteByteFiles(checkpoint, &manifest));
  VOXRT_ASSIGN_OR_RETURN(std::vector<std::string> hashes, hasher->Wait());
  VOXRT_RETURN_IF_ERROR(data.Finish(&report->sha256));
  hashes.push_back(report->sha256);
  VOXRT_RETURN_IF_ERROR(FillPlaceholders(hashes, &manifest));
  std::string manifest_hash;
  VOXRT_RETURN_IF_ERROR(manifest.Finish(&manifest_hash));
  report->artifact_bytes = data.bytes() + manifest.bytes();
  return {};
}

}  // namespace

Result<ExportReport> WriteArtifact(const ExportOptions& options, const ExportPlan& plan,
                                   const weights::Checkpoint& checkpoint, const std::string& producer,
                                   const Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  ExportReport report;
  report.command = CommandOf(options);
  report.quantizer = quant::SearchName(options.search);
  report.source_bytes = plan.source_bytes;
  ArtifactMetadata metadata = MakeMetadata(options, plan, producer);
  VOXRT_ASSIGN_OR_RETURN(metadata.sources, ListSources(options.model_path));
  SourceHasher hasher(options.model_path, metadata.sources);
  for (size_t i = 0; i < metadata.sources.size(); ++i) metadata.sources[i].sha256 = Placeholder(i);
  Exporter exporter(options, plan, checkpoint, progress);
  VOXRT_RETURN_IF_ERROR((options.data_path.empty() ? WriteWhole : WritePair)(
      options, checkpoint, metadata, WeightLayout(plan), &hasher, &exporter, &report));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string ReportJson(const ExportReport& report) {
  using base::Json;
  Json::Array tensors;
  for (const TensorReport& tensor : report.tensors) {
    tensors.push_back(Json::MakeObject({{"name", tensor.name},
                                        {"format", tensor.format},
                                        {"source_bytes", tensor.source_bytes},
                                        {"bytes", tensor.bytes},
                                        {"relative_rms", tensor.relative_rms},
                                        {"max_abs", tensor.max_abs},
                                        {"max_value", tensor.max_value}}));
  }
  return Json::MakeObject({{"command", report.command},
                           {"quantizer", report.quantizer},
                           {"sha256", report.sha256},
                           {"source_bytes", report.source_bytes},
                           {"artifact_bytes", report.artifact_bytes},
                           {"seconds", report.seconds},
                           {"tensors", Json(std::move(tensors))}})
      .Dump(1);
}

}  // namespace voxrt::exporter
