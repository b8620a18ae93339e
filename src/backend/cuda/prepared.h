// Weights in device units (kernels/weights.cuh), as handed to the model.
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/linear.h"

namespace voxrt::cuda {

class CudaLinear final : public backend::PreparedLinear {
 public:
  CudaLinear(const backend::LinearSpec& spec, int64_t rows, int64_t cols, const cuda_kernels::WeightRef& weight)
      : PreparedLinear(rows, cols, spec.role), weight_(weight) {}
  const cuda_kernels::WeightRef& weight() const { return weight_; }

 private:
  cuda_kernels::WeightRef weight_;  // memory belongs to the device
};

class CudaConv final : public backend::PreparedConv {
 public:
  CudaConv(const backend::ConvSpec& spec, const cuda_kernels::WeightRef& weight)
      : PreparedConv(spec.out_channels, spec.in_channels, spec.stride), weight_(weight) {}
  const cuda_kernels::WeightRef& weight() const { return weight_; }

 private:
  cuda_kernels::WeightRef weight_;  // inputs are tap-major: three frames side by side
};

}  // namespace voxrt::cuda
