// Weights as a backend takes them: what the model hands over once at load, and the opaque handles it gets back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quant/format.h"

namespace voxrt::backend {

// Rows of one stored weight inside a PreparedLinear. Borrowed memory that outlives the PreparedLinear; a backend may
// use it in place (never copying) or repack it.
struct LinearBlock {
  quant::HostLinear weight;
  std::span<const float> bias;  // [weight.rows] or empty
};

enum class LinearRole : uint8_t {
  kPlain,   // y = x W^T (+ bias)
  kQkv,     // blocks q, k, v stacked
  kGateUp,  // exactly two blocks of equal shape: gate (w1) and up (w3), for LinearPair
  kHead,    // output head; may also serve as the token table of Embed
};

struct LinearSpec {
  std::string name;  // for errors and reports
  LinearRole role = LinearRole::kPlain;
  std::vector<LinearBlock> blocks;  // equal cols; rows are stacked in order
};

// A weight in a device-private layout; opaque to the model.
class PreparedLinear {
 public:
  PreparedLinear(int64_t rows, int64_t cols, LinearRole role) : rows_(rows), cols_(cols), role_(role) {}
  virtual ~PreparedLinear() = default;
  PreparedLinear(const PreparedLinear&) = delete;
  PreparedLinear& operator=(const PreparedLinear&) = delete;

  int64_t rows() const { return rows_; }  // all blocks together
  int64_t cols() const { return cols_; }
  LinearRole role() const { return role_; }

 private:
  int64_t rows_;
  int64_t cols_;
  LinearRole role_;
};

// A causal convolution of kernel 3: weight [out_channels, in_channels, 3] of F32/F16/BF16 and bias [out_channels].
struct ConvSpec {
  std::string name;
  const void* weight = nullptr;
  quant::DType dtype = quant::DType::kBF16;
  int64_t out_channels = 0;
  int64_t in_channels = 0;
  int stride = 1;  // 1 or 2
  std::span<const float> bias;
};

class PreparedConv {
 public:
  PreparedConv(int64_t out_channels, int64_t in_channels, int stride)
      : out_channels_(out_channels), in_channels_(in_channels), stride_(stride) {}
  virtual ~PreparedConv() = default;
  PreparedConv(const PreparedConv&) = delete;
  PreparedConv& operator=(const PreparedConv&) = delete;

  int64_t out_channels() const { return out_channels_; }
  int64_t in_channels() const { return in_channels_; }
  int stride() const { return stride_; }
  // Input frames before the first that a step needs: 2 at stride 1, 1 at stride 2.
  int tail_rows() const { return 3 - stride_; }

 private:
  int64_t out_channels_;
  int64_t in_channels_;
  int stride_;
};

}  // namespace voxrt::backend
