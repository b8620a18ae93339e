// Checkpoint -> artifact: quantizes tensor by tensor on all cores and writes the one file (or manifest and data file).
// Little memory, whatever the checkpoint's size; nothing under the final name until everything is there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "export/options.h"
#include "export/plan.h"
#include "weights/checkpoint.h"

namespace voxrt::exporter {

struct TensorReport {
  std::string name;
  std::string format;
  int64_t source_bytes = 0;
  int64_t bytes = 0;          // stored, scales included
  double relative_rms = 0.0;  // against the checkpoint's values; 0 for what is copied exactly
  double max_abs = 0.0;
  double max_value = 0.0;  // largest |w|, 0 for what is copied
};

struct ExportReport {
  std::string command;
  std::string quantizer;
  std::vector<TensorReport> tensors;  // in the order of computation
  int64_t source_bytes = 0;           // each of the checkpoint's tensors once
  int64_t artifact_bytes = 0;         // all files
  double seconds = 0.0;
  std::string sha256;  // of the contents, as in the artifact
};

// Bytes of work done so far and in all, after every tensor; false ends the export with kCancelled and leaves nothing
// behind.
using Progress = std::function<bool(int64_t done_bytes, int64_t total_bytes)>;

// `checkpoint` was opened from options.model_path; `plan` was made for both. `producer`: program and version.
Result<ExportReport> WriteArtifact(const ExportOptions& options, const ExportPlan& plan,
                                   const weights::Checkpoint& checkpoint, const std::string& producer,
                                   const Progress& progress);

// The report as JSON text (docs/quantization.md).
std::string ReportJson(const ExportReport& report);

}  // namespace voxrt::exporter
