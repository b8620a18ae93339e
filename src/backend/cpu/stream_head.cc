// The output head: final norm, product and arg-max of the rows that a call asks for, over the whole head or by a scan.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/split.h"
#include "backend/cpu/stream.h"

namespace voxrt::backend::cpu {
namespace {

// More rows share the bytes of the whole head, and the scan's products would cost more than they save.
constexpr int64_t kScanRows = 8;
// So many exact rows, each read from memory by itself, are still a fraction of the head.
constexpr size_t kMostCandidates = 1024;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kNoIndex = std::numeric_limits<int32_t>::max();

}  // namespace

void CpuStream::ResetBest(int worker, int64_t rows) {
  std::fill_n(best_value_.data() + worker * rows, rows, -kInfinity);
  std::fill_n(best_index_.data() + worker * rows, rows, kNoIndex);
}

// The first index of the largest value that any worker met for a row; 0 where none did (all were NaN).
int32_t CpuStream::BestOfWorkers(int64_t row, int64_t rows) const {
  float value = -kInfinity;
  int32_t index = 0;
  for (auto w = static_cast<int64_t>(scratch_.size()) - 1; w >= 0; --w) {  // lower workers hold lower indices
    const auto at = static_cast<size_t>(w * rows + row);
    if (best_index_[at] == kNoIndex || !(best_value_[at] >= value)) continue;
    value = best_value_[at];
    index = best_index_[at];
  }
  return index;
}

void CpuStream::Head(const HeadArgs& args) {
  checker_.Check(args);
  const std::vector<int32_t>& head_rows = plan(PlanId::kDecoder).head_rows;
  const auto rows = static_cast<int64_t>(head_rows.size());
  if (rows == 0) return;
  const auto workers = static_cast<int64_t>(scratch_.size());
  if (static_cast<int64_t>(best_value_.size()) < workers * rows) {
    best_value_.resize(static_cast<size_t>(workers * rows));
    best_index_.resize(static_cast<size_t>(workers * rows));
  }
  const Input input{.x = args.x,
                    .gain = args.gain,
                    .epsilon = args.epsilon,
                    .normed = args.normed,
                    .rows = rows,
                    .row_of = head_rows.data()};
  const CpuLinear& weight = AsCpu(args.weight);
  const bool scanned =
      weight.scan() != nullptr && args.logits.empty() && rows <= kScanRows && ScanHead(input, weight, args.token);
  if (!scanned) {
    RunLinearOp(input, weight, {.out = args.logits, .arg_max = true});
    for (int64_t r = 0; r < rows; ++r) *reinterpret_cast<int32_t*>(args.token.row_bytes(r)) = BestOfWorkers(r, rows);
  }
  StoreTokens(args.token, rows);
}

// False where the bound leaves too many rows of the head: nothing is decided then.
bool CpuStream::ScanHead(const Input& input, const CpuLinear& weight, const View& token) {
  const HeadScan& scan = *weight.scan();
  const int64_t rows = input.rows;
  const int64_t cols = scan.cols();
  const int64_t code_bytes = HeadScan::kCodesPerRow * QuantizedRowBytes(cols);
  auto* const normed = scan_normed_.Get<float>((rows + 1) * cols);  // the last row is scratch
  auto* const codes = scan_codes_.Get<std::byte>(rows * code_bytes);
  auto* const scores = scan_scores_.Get<float>(rows * HeadScan::kCodesPerRow * scan.rows());
  const auto score_row = [&](int64_t r) { return scores + r * HeadScan::kCodesPerRow * scan.rows(); };
  HeadScan::Bound bounds[kScanRows];
  for (int64_t r = 0; r < rows; ++r) {
    NormRow(input, r, normed + r * cols);
    bounds[r] = scan.QuantizeInput(normed + r * cols, normed + rows * cols, codes + r * code_bytes);
  }

  RunWorkers([&](int worker, int workers) {
    const Range range = Split(scan.rows(), kSplitUnit, worker, workers);
    ResetBest(worker, rows);
    if (range.begin >= range.end) return;
    LinearJob job{.n_begin = range.begin,
                  .n_end = range.end,
                  .quantized = codes,
                  .rows = rows * HeadScan::kCodesPerRow,
                  .out = scores,
                  .out_stride = scan.rows()};
    scan.SetWeight(job);
    RunLinear(job, *scratch_[static_cast<size_t>(worker)]);
    for (int64_t r = 0; r < rows; ++r) {
      best_value_[static_cast<size_t>(worker * rows + r)] =
          scan.Score(bounds[r], range.begin, range.end, score_row(r), score_row(r) + scan.rows());
    }
  });

  candidates_.clear();
  size_t ends[kScanRows];
  for (int64_t r = 0; r < rows; ++r) {
    float least = -kInfinity;
    for (size_t w = 0; w < scratch_.size(); ++w) {
      least = std::max(least, best_value_[w * static_cast<size_t>(rows) + static_cast<size_t>(r)]);
    }
    if (!std::isfinite(least)) return false;
    scan.Candidates(bounds[r], score_row(r), least, kMostCandidates, &candidates_);
    if (candidates_.size() > kMostCandidates) return false;
    ends[r] = candidates_.size();
  }

  RunWorkers([&](int worker, int workers) {
    ResetBest(worker, rows);
    LinearJob job{.x_stride = cols, .rows = 1};
    SetWeight(weight.blocks().front(), job);
    for (int64_t r = 0; r < rows; ++r) {
      const size_t begin = r == 0 ? 0 : ends[r - 1];
      const Range part = Split(static_cast<int64_t>(ends[r] - begin), 1, worker, workers);
      job.x = normed + r * cols;
      job.best_value = best_value_.data() + worker * rows + r;
      job.best_index = best_index_.data() + worker * rows + r;
      for (int64_t i = part.begin; i < part.end; ++i) {
        job.n_begin = candidates_[begin + static_cast<size_t>(i)];
        job.n_end = job.n_begin + 1;
        RunLinear(job, *scratch_[static_cast<size_t>(worker)]);
      }
    }
  });
  for (int64_t r = 0; r < rows; ++r) *reinterpret_cast<int32_t*>(token.row_bytes(r)) = BestOfWorkers(r, rows);
  return true;
}

}  // namespace voxrt::backend::cpu
