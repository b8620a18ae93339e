#include "backend/cpu/head_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/dtype.h"

namespace voxrt::backend::cpu {
namespace {

// |sum of codes * codes| stays below 2^31.
constexpr int64_t kMostCols = 65536;
constexpr double kUnit = 1.0 / (1 << 24);  // relative error of one fp32 rounding
constexpr double kMostNorm = 1e15;         // of a row and of the input: no sum comes near the largest float
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A float that is not smaller; a little more than needed, for the fp32 arithmetic of ErrorOf and its user.
float Up(double value) {
  constexpr double kSlack = 1.0 + 16.0 * kUnit;
  const auto rounded = static_cast<float>(value * kSlack);
  return std::nextafter(rounded, kInfinity);
}

// The least bf16 that is not below a positive value.
uint16_t BF16Up(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0xffffu) >> 16);
}

// What QuantizeRow left in a row of 8-bit codes: value = scale * (code - zero).
struct CodeRow {
  CodeRow(const std::byte* row, int64_t cols) : codes(reinterpret_cast<const int8_t*>(row)) {
    const std::byte* const tail = row + QuantizedRowBytes(cols) - 64;
    std::memcpy(&scale, tail, sizeof scale);
    std::memcpy(&zero, tail + sizeof scale, sizeof zero);
  }
  double Value(int64_t k) const {
    return static_cast<double>(scale) * (static_cast<double>(codes[k]) - static_cast<double>(zero));
  }

  const int8_t* codes;
  float scale = 0.0f;
  float zero = 0.0f;
};

}  // namespace

HeadScan::HeadScan(int64_t rows, int64_t cols)
    : rows_(rows),
      cols_(cols),
      codes_(static_cast<size_t>(rows * cols)),
      scale_(static_cast<size_t>(rows)),
      code_sum_(static_cast<size_t>(rows)),
      error_norm_(static_cast<size_t>(rows)),
      code_norm_(static_cast<size_t>(rows)) {}

std::unique_ptr<HeadScan> HeadScan::Make(const quant::HostLinear& head, base::ThreadPool& pool) {
  if (head.format.kind != quant::FormatKind::kFloat || head.cols > kMostCols) return nullptr;
  std::unique_ptr<HeadScan> scan(new HeadScan(head.rows, head.cols));
  pool.Run([&](int worker, int workers) {
    scan->QuantizeRows(head, head.rows * worker / workers, head.rows * (worker + 1) / workers);
  });
  return scan;
}

void HeadScan::QuantizeRows(const quant::HostLinear& head, int64_t begin, int64_t end) {
  constexpr float kMostCode = 127.0f;
  const auto stored_bytes = static_cast<int64_t>(quant::DTypeBytes(head.format.dtype));
  std::vector<float> row(static_cast<size_t>(cols_));
  for (int64_t n = begin; n < end; ++n) {
    WidenRow(static_cast<const std::byte*>(head.data) + n * cols_ * stored_bytes, head.format.dtype, cols_, row.data());
    float most = 0.0f;
    double w_norm = 0.0;
    for (const float w : row) {
      most = std::max(most, std::fabs(w));
      w_norm += static_cast<double>(w) * static_cast<double>(w);
    }
    const auto at = static_cast<size_t>(n);
    if (!(w_norm < kMostNorm * kMostNorm)) {  // NaN too: codes of 0 and no bound, always multiplied exactly
      error_norm_[at] = kInfinity;
      continue;
    }
    scale_[at] = BF16Up(most / kMostCode);
    const float scale = quant::BF16ToF32(scale_[at]);
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    int8_t* const codes = codes_.data() + n * cols_;
    int32_t sum = 0;
    double error = 0.0;
    double norm = 0.0;
    for (int64_t k = 0; k < cols_; ++k) {
      const float w = row[static_cast<size_t>(k)];
      const float code = std::clamp(std::nearbyint(w * inverse), -kMostCode, kMostCode);
      codes[k] = static_cast<int8_t>(code);
      sum += codes[k];
      const double value = static_cast<double>(scale) * static_cast<double>(codes[k]);
      norm += value * value;
      error += (static_cast<double>(w) - value) * (static_cast<double>(w) - value);
    }
    code_sum_[at] = static_cast<float>(sum);
    error_norm_[at] = Up(std::sqrt(error));
    code_norm_[at] = Up(std::sqrt(norm));
  }
}

HeadScan::Bound HeadScan::QuantizeInput(const float* x, float* rest, std::byte* codes) const {
  std::byte* const second_codes = codes + QuantizedRowBytes(cols_);
  QuantizeRow(x, cols_, quant::FormatKind::kInt8, codes);
  const CodeRow first(codes, cols_);
  for (int64_t k = 0; k < cols_; ++k) rest[k] = static_cast<float>(static_cast<double>(x[k]) - first.Value(k));
  QuantizeRow(rest, cols_, quant::FormatKind::kInt8, second_codes);
  const CodeRow second(second_codes, cols_);
  double x_norm = 0.0;
  double first_norm = 0.0;
  double second_norm = 0.0;
  double error = 0.0;
  for (int64_t k = 0; k < cols_; ++k) {
    const auto value = static_cast<double>(x[k]);
    const double a = first.Value(k);
    const double b = second.Value(k);
    x_norm += value * value;
    first_norm += a * a;
    second_norm += b * b;
    error += (value - a - b) * (value - a - b);
  }
  x_norm = std::sqrt(x_norm);
  if (!(x_norm < kMostNorm)) return {.weight_factor = kInfinity, .code_factor = kInfinity, .floor = kInfinity};
  // The exact head sums in fp32: at most (cols + a few) roundings of its largest partial sum, |w| |x| <= (|w - w'| +
  // |w'|) |x|. The scan rounds each of its two products and their sum a few times.
  const double sum_error = 2.0 * kUnit * static_cast<double>(cols_ + 64) * x_norm;
  const double scan_error = 16.0 * kUnit * (std::sqrt(first_norm) + std::sqrt(second_norm));
  const double lost = static_cast<double>(std::numeric_limits<float>::min()) * static_cast<double>(2 * (cols_ + 64));
  return {.weight_factor = Up(x_norm + sum_error),
          .code_factor = Up(std::sqrt(error) + sum_error + scan_error),
          .floor = Up(lost)};
}

void HeadScan::SetWeight(LinearJob& job) const {
  job.format = {.kind = quant::FormatKind::kInt8, .group = 0, .int8_activations = true};
  job.weight = codes_.data();
  job.scale = scale_.data();
  job.sums = code_sum_.data();
  job.cols = cols_;
}

float HeadScan::Score(const Bound& bound, int64_t begin, int64_t end, float* first, const float* second) const {
  float least = -kInfinity;
  for (int64_t n = begin; n < end; ++n) {
    first[n] += second[n];
    const float reached = first[n] - ErrorOf(bound, n);
    if (reached > least) least = reached;
  }
  return least;
}

void HeadScan::Candidates(const Bound& bound, const float* scores, float least, size_t most,
                          std::vector<int32_t>* out) const {
  constexpr int64_t kBlock = 256;  // counted without branches first: most have none
  const auto may_reach = [&](int64_t n) { return !(scores[n] + ErrorOf(bound, n) < least); };  // NaN may
  for (int64_t begin = 0; begin < rows_ && out->size() <= most; begin += kBlock) {
    const int64_t end = std::min(rows_, begin + kBlock);
    int count = 0;
    for (int64_t n = begin; n < end; ++n) count += may_reach(n) ? 1 : 0;
    if (count == 0) continue;
    for (int64_t n = begin; n < end; ++n) {
      if (may_reach(n)) out->push_back(static_cast<int32_t>(n));
    }
  }
}

}  // namespace voxrt::backend::cpu
