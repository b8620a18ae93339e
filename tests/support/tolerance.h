// Tolerances, computed from the operands. Two results of the same formula, each in fp32 (or with operands rounded to a
// shorter type), differ by rounding only, and how much follows from sums over the operands:
//
//   summation  n rounded additions of terms t: with independent roundings the error is below c sqrt(n) u sum|t| (Higham
//   and Mary,
//              SIAM J. Sci. Comput. 41 (2019): with probability 1 - 2 exp(-c^2 / 2) for each result); c = 4, and 4 more
//              units for products, folds and conversions. A lost or doubled term is about sum|t| / n and does not fit
//              in.
//   operand    values rounded to a type of unit roundoff u2 inside an operation (bf16 weights of a backend that applies
//   scales
//              to the accumulator): 6 u2 sqrt(sum t^2), by the same argument with c = 6.
//   result     both results are rounded to the element type of the output.
#pragma once

#include "backend/device.h"
#include "support/rig.h"
#include "support/sessions.h"
#include "support/weights.h"

namespace voxrt::test {

// Largest relative rounding error of a type.
double UnitRoundoff(quant::DType dtype);

// 4 (sqrt(n) + 4) u32: error of a sum of n terms relative to the sum of their magnitudes.
double SumError(int64_t n);

// What an output of `dtype` may differ by when both sides round values near `value`.
double ResultError(double value, quant::DType dtype);

// Error of x W^T + bias before the result's rounding, [x.rows, weight rows]. `x` as the operation sees it.
Matrix LinearTolerance(const Matrix& x, const TestWeight& weight);

// Error of gelu(y) where y itself is known to within `error`.
double GeluTolerance(double y, double error);

// Error of silu(gate) * up.
double PairTolerance(double gate, double gate_error, double up, double up_error);

// Attention of a whole session from index 0, fed as `qkv` and unrotated; `expected` is ref's output. Errors of scores
// act on all weights: |d out| <= sum p |v| (2 max|d score| + errors of exp and of the two sums).
Matrix AttentionTolerance(const AttentionRun& run, int64_t window, const Matrix& qkv, const Matrix& expected);

}  // namespace voxrt::test
