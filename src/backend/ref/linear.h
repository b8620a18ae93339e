// Linear weights of the ref backend: the borrowed host blocks as they are, multiplied row by row.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/linear.h"
#include "backend/view.h"

namespace voxrt::backend {

class RefLinear final : public PreparedLinear {
 public:
  explicit RefLinear(const LinearSpec& spec);

  // y = x W^T + bias as fp64 [x.rows, rows()], row-major. Each row of y depends on its row of x alone.
  std::vector<double> Multiply(const View& x) const;

  // Row `row` of the stacked weight as every backend must see it, [cols()].
  std::vector<float> Row(int64_t row) const;

 private:
  std::vector<LinearBlock> blocks_;
};

}  // namespace voxrt::backend
