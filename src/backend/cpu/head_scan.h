// A float output head searched by an 8-bit scan, with the full head's answer: an int8 copy of the head gives every
// logit within a bound, and only rows that the bound cannot exclude are multiplied exactly. Half of the head's bytes
// are read.
//
// The bound. Row w is kept as w' = scale * codes, the input x as x' = x1 + x2: int8 codes of x, and of what they leave.
//   |w . x - w' . x'| <= |w - w'| |x| + |w'| |x - x'|     (Cauchy-Schwarz, Euclidean norms)
// and fp32 sums differ from exact ones by no more than a multiple of |w| |x|. All norms are those of the stored codes,
// computed in double and rounded up, so no assumption is made about how the codes were chosen. With the integer to the
// end arithmetic of 8da8w rows the scan's own products are exact before their last roundings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "quant/format.h"

namespace voxrt::backend::cpu {

class HeadScan {
 public:
  // |logit - score| of row n is at most weight_factor * (row n's error norm) + code_factor * (row n's code norm) +
  // floor. Infinite where x is not finite, or so large that fp32 sums might overflow.
  struct Bound {
    float weight_factor = 0.0f;
    float code_factor = 0.0f;
    float floor = 0.0f;  // what is lost below the normal floats
  };
  // Input rows of the scan for each row of x.
  static constexpr int64_t kCodesPerRow = 2;

  // Reads all of `head`; null where it cannot be scanned: quantized already, or too wide for exact integer sums.
  static std::unique_ptr<HeadScan> Make(const quant::HostLinear& head, base::ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Memory beside the head itself.
  int64_t bytes() const { return rows_ * (cols_ + static_cast<int64_t>(sizeof(uint16_t) + 3 * sizeof(float))); }

  // Codes of x [cols], kCodesPerRow rows of QuantizedRowBytes(cols); `rest` [cols] is overwritten.
  Bound QuantizeInput(const float* x, float* rest, std::byte* codes) const;
  // The weight of a job; its products with the two code rows of an input add up to the scores.
  void SetWeight(LinearJob& job) const;

  // first[n] += second[n] for n in [begin, end): from products to scores. Returns the largest value that the logit of
  // one of these rows certainly reaches; NaN never counts.
  float Score(const Bound& bound, int64_t begin, int64_t end, float* first, const float* second) const;
  // The rows whose logit may reach `least`, in rising order; stops behind `most` of them.
  void Candidates(const Bound& bound, const float* scores, float least, size_t most, std::vector<int32_t>* out) const;

 private:
  HeadScan(int64_t rows, int64_t cols);
  void QuantizeRows(const quant::HostLinear& head, int64_t begin, int64_t end);
  float ErrorOf(const Bound& bound, int64_t row) const {
    return bound.weight_factor * error_norm_[static_cast<size_t>(row)] +
           bound.code_factor * code_norm_[static_cast<size_t>(row)] + bound.floor;
  }

  int64_t rows_;
  int64_t cols_;
  std::vector<int8_t> codes_;      // [rows, cols]
  std::vector<uint16_t> scale_;    // [rows] bf16
  std::vector<float> code_sum_;    // [rows] of the codes
  std::vector<float> error_norm_;  // [rows] |w - w'|, rounded up
  std::vector<float> code_norm_;   // [rows] |w'|, rounded up
};

}  // namespace voxrt::backend::cpu
