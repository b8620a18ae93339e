#include "export/plan.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string_view>

#include "quant/encode.h"

namespace voxrt::exporter {
namespace {

using quant::Format;
using quant::FormatKind;
using weights::TensorRole;

constexpr std::string_view kModule = "mm_streams_embeddings.embedding_module.";

Status Refuse(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

bool IsPerRowInt8(const Format& format) { return format.kind == FormatKind::kInt8 && format.group == 0; }

// The head's choice: its own, else the decoder's.
QuantChoice HeadChoice(const ExportOptions& options) {
  QuantChoice head = options.head;
  if (head.type.empty()) return options.linear;
  if (head.group == kAutoGroup && head.type == options.linear.type) head.group = options.linear.group;
  if (head.type == "4w" && options.linear.type == "4w" && head.packing.empty()) head.packing = options.linear.packing;
  return head;
}

// The format of a linear weight by its place in the model.
Format LinearFormat(const ExportOptions& options, std::string_view name) {
  if (name == weights::kEmbeddingName) return FormatOf(options.embedding);
  if (name == weights::kHeadName) return FormatOf(HeadChoice(options));
  return FormatOf(name.starts_with(kModule) ? options.encoder : options.linear);
}

quant::DType FloatType(const ExportOptions& options, quant::DType stored) {
  return options.dtype == "bf16" ? quant::DType::kBF16 : stored;
}

// wq and wk (weight and bias) of a half-split source are stored in the adjacent form.
int64_t RopeHeadDim(const weights::Checkpoint& checkpoint, std::string_view name) {
  if (checkpoint.rope_rows() != weights::RopeRows::kHalf) return 0;
  if (name.find(".attention.wq.") == name.npos && name.find(".attention.wk.") == name.npos) return 0;
  return name.starts_with(kModule) ? checkpoint.config().encoder.head_dim : checkpoint.config().decoder.head_dim;
}

Status CheckWindow(const char* flag, std::optional<int64_t> wanted, int64_t own) {
  if (!wanted.has_value() || *wanted <= own) return {};
  return Refuse(fmt::format("{} {} is above the checkpoint's window of {}; use a smaller one or leave it out", flag,
                            *wanted, own));
}

class Planner {
 public:
  Planner(const ExportOptions& options, const weights::Checkpoint& checkpoint)
      : options_(options), checkpoint_(checkpoint) {}

  Result<ExportPlan> Run() {
    for (const weights::TensorSpec& spec : weights::ExpectedTensors(checkpoint_.config())) {
      if (spec.name == weights::kHeadName) {
        VOXRT_RETURN_IF_ERROR(AddHead(spec));
      } else {
        VOXRT_RETURN_IF_ERROR(Add(spec.name, spec.name, spec.shape, spec.role));
      }
    }
    std::set<std::string_view> counted;
    for (const PlannedTensor& tensor : plan_.tensors) {
      if (counted.insert(tensor.source).second)
        plan_.source_bytes += checkpoint_.tensors().find(tensor.source)->second.bytes;
    }
    return std::move(plan_);
  }

 private:
  Status Add(const std::string& name, const std::string& source, const std::vector<int64_t>& shape, TensorRole role) {
    PlannedTensor tensor{name, source, shape, {}, RopeHeadDim(checkpoint_, name)};
    if (role == TensorRole::kLinear) tensor.format = LinearFormat(options_, name);
    if (tensor.format.kind == FormatKind::kFloat) {
      tensor.format.dtype = FloatType(options_, checkpoint_.tensors().find(source)->second.dtype);
    } else {
      const Status shape_status = quant::CheckShape(tensor.format, shape[0], shape[1]);
      if (!shape_status.ok())
        return Refuse(
            fmt::format("{} cannot be {}: {}", name, quant::FormatName(tensor.format), shape_status.message()));
      plan_.formats.emplace(name, tensor.format);
    }
    plan_.tensors.push_back(std::move(tensor));
    return {};
  }

  // A tied head needs rows of its own only where its format differs from the embedding's.
  Status AddHead(const weights::TensorSpec& spec) {
    const std::string name(weights::kHeadName);
    if (checkpoint_.Has(name)) return Add(name, name, spec.shape, spec.role);
    const std::string embedding(weights::kEmbeddingName);
    const Format head = LinearFormat(options_, name);
    const Format table = LinearFormat(options_, embedding);
    if (head == table) {
      plan_.head_shares_embedding = true;
      return {};
    }
    if (IsPerRowInt8(head) && IsPerRowInt8(table)) {  // the same codes and scales; only the activations differ
      plan_.head_shares_embedding = true;
      plan_.formats.emplace(name, head);
      return {};
    }
    return Add(name, embedding, spec.shape, spec.role);
  }

  const ExportOptions& options_;
  const weights::Checkpoint& checkpoint_;
  ExportPlan plan_;
};

}  // namespace

int64_t PlannedTensor::elements() const {
  int64_t count = 1;
  for (const int64_t dimension : shape) count *= dimension;
  return count;
}

Format FormatOf(const QuantChoice& choice) {
  Format format;
  if (choice.type.empty() || choice.type == kKeepFloat) return format;
  const bool four = choice.type == "4w" || choice.type == "8da4w";
  format.kind = !four ? FormatKind::kInt8 : choice.packing.empty() ? FormatKind::kInt4 : FormatKind::kInt4Tile;
  format.group = choice.group != kAutoGroup ? choice.group : four ? 32 : 0;
  format.int8_activations = choice.type.starts_with("8da");
  return format;
}

Result<ExportPlan> MakePlan(const ExportOptions& options, const weights::Checkpoint& checkpoint) {
  if (checkpoint.layout() == "artifact") {
    return Refuse(fmt::format("{} is an exported artifact already; export from the original checkpoint's directory",
                              options.model_path));
  }
  VOXRT_RETURN_IF_ERROR(CheckWindow("--max-enc-len", options.max_enc_len, checkpoint.config().encoder.window));
  VOXRT_RETURN_IF_ERROR(CheckWindow("--sliding-window", options.sliding_window, checkpoint.config().decoder.window));
  return Planner(options, checkpoint).Run();
}

}  // namespace voxrt::exporter
