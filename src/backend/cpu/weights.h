// Weights as the CPU backend keeps them: references to the caller's storage, multiplied in place.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/head_scan.h"
#include "backend/cpu/kernels.h"
#include "backend/linear.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace voxrt::backend::cpu {

bool SupportsFormat(const quant::Format& format);

class CpuLinear : public PreparedLinear {
 public:
  struct Block {
    quant::HostLinear weight;
    const float* bias = nullptr;     // [weight.rows] or null
    const uint16_t* zero = nullptr;  // [weight.rows, groups], kInt4Tile only
    const float* sums = nullptr;     // [weight.rows] sum of scale * code, formats with int8 activations only
    int64_t row_begin = 0;           // of its first row in the stacked matrix
  };

  // `pool` shares the preparation: it reads every code of a format with int8 activations, and every row of a head that
  // is to be scanned.
  static Result<std::unique_ptr<CpuLinear>> Make(const LinearSpec& spec, bool head_scan, base::ThreadPool& pool);
  CpuLinear(int64_t rows, int64_t cols, LinearRole role) : PreparedLinear(rows, cols, role) {}

  const std::vector<Block>& blocks() const { return blocks_; }
  // Of the first block; all blocks take the same form of activations.
  const quant::Format& format() const { return blocks_.front().weight.format; }
  // The 8-bit copy of a float head; null where there is none.
  const HeadScan* scan() const { return scan_.get(); }
  // Row `row` of the stacked matrix as fp32: the token table.
  void ReadRow(int64_t row, float* out) const;

 private:
  void PrepareBlock(Block& block, base::ThreadPool& pool);
  void UntileBlock(Block& block, base::ThreadPool& pool);

  std::vector<Block> blocks_;
  std::unique_ptr<HeadScan> scan_;
  std::vector<std::unique_ptr<float[]>> sums_;
  std::vector<std::unique_ptr<uint8_t[]>> codes_;    // of untiled blocks
  std::vector<std::unique_ptr<uint16_t[]>> scales_;  // likewise: scales, then zeros
};

// The format part of a kernel's job: weight, scales, zeros, sums, bias of `block` (or as the pair of a gate/up
// product).
void SetWeight(const CpuLinear::Block& block, LinearJob& job);
void SetPair(const CpuLinear::Block& block, LinearJob& job);

// A convolution of kernel 3 is a linear layer over gathered frames: its weight rows [in, 3] are used as they are
// stored.
class CpuConv : public PreparedConv {
 public:
  static Result<std::unique_ptr<CpuConv>> Make(const ConvSpec& spec, base::ThreadPool& pool);
  CpuConv(int64_t out_channels, int64_t in_channels, int stride) : PreparedConv(out_channels, in_channels, stride) {}

  const CpuLinear& linear() const { return *linear_; }  // [out_channels, in_channels * 3]

 private:
  std::unique_ptr<CpuLinear> linear_;
};

// A handle that this backend prepared; CHECKed.
const CpuLinear& AsCpu(const PreparedLinear* linear);
const CpuConv& AsCpu(const PreparedConv* conv);

}  // namespace voxrt::backend::cpu
