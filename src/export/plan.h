// Which tensor of a checkpoint is stored how. A pure function of options, sizes and the checkpoint's table: everything
// that can be refused is refused here, before a weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "export/options.h"
#include "quant/format.h"
#include "weights/artifact_metadata.h"
#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace voxrt::exporter {

struct PlannedTensor {
  std::string name;            // canonical name in the artifact
  std::string source;          // canonical name in the checkpoint (the head may come from the embedding)
  std::vector<int64_t> shape;  // as in the checkpoint
  quant::Format format;        // kFloat: stored as format.dtype
  int64_t rope_head_dim = 0;   // > 0: rows go from half-split to adjacent pairs inside heads of this size

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t elements() const;
};

struct ExportPlan {
  std::vector<PlannedTensor> tensors;  // in the order of computation
  weights::FormatMap formats;          // of the quantized ones, and of a head that shares the embedding's rows
  bool head_shares_embedding = false;  // no rows of its own
  int64_t source_bytes = 0;            // of the checkpoint, each tensor once
};

// The format that a choice stands for; kFloat for an empty one.
quant::Format FormatOf(const QuantChoice& choice);

// `options` have passed ValidateOptions.
Result<ExportPlan> MakePlan(const ExportOptions& options, const weights::Checkpoint& checkpoint);

}  // namespace voxrt::exporter
