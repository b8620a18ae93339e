// A whole float weight -> a stored weight of another format, multi-threaded by rows, with the error it costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "quant/format.h"
#include "quant/quantize.h"

namespace voxrt::quant {

// Difference between the source values and what a reader of the stored weight sees (DequantizeRow).
struct EncodeError {
  double relative_rms = 0.0;  // sqrt(sum (w - w')^2 / sum w^2); 0 for an all-zero weight
  double max_abs = 0.0;       // largest |w - w'|
  double max_value = 0.0;     // largest |w|
};

struct EncodedLinear {
  Format format;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> data;  // as HostLinear::data
  std::vector<uint16_t> scale;  // as HostLinear::scale
  EncodeError error;

  HostLinear View() const { return {format, rows, cols, data.data(), scale.data()}; }
};

// Bytes of a stored weight of this shape.
int64_t DataBytes(const Format& format, int64_t rows, int64_t cols);
int64_t ScaleCount(const Format& format, int64_t rows, int64_t cols);  // number of bf16 values; 0 for kFloat

// Not ok where the shape does not fit the format (group does not divide the columns, rows not a multiple of 8 for
// tiles, ...); the message states the rule without naming the weight.
Status CheckShape(const Format& format, int64_t rows, int64_t cols);

// `source` is kFloat; `format` is not. `source_row(row)` gives the source row that becomes stored row `row`.
// kInvalidModel where a value is not finite.
Result<EncodedLinear> EncodeLinear(const HostLinear& source, const Format& format, Search search,
                                   base::ThreadPool& pool, base::FunctionRef<int64_t(int64_t)> source_row);
Result<EncodedLinear> EncodeLinear(const HostLinear& source, const Format& format, Search search,
                                   base::ThreadPool& pool);

}  // namespace voxrt::quant
