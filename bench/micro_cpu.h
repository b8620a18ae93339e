// What the CPU micro-benchmarks share: the device, random weights in canonical storage, rates beside the roofline.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "backend/stream.h"
#include "base/check.h"

namespace voxrt::bench {

struct Roofline {
  int threads = 0;  // 0: one per core
  double read_bytes_per_s = 1.0;
  double fma_per_s = 1.0;  // floating-point operations, 2 per multiply-add
};
Roofline& MachineRoofline();
backend::Device& CpuDevice();

// Measures the read bandwidth again, for shares that hold on a machine whose bandwidth drifts; returns it.
double RefreshReadBandwidth();

// GB/s, GFLOP/s and their shares of the roofline for work of `bytes` and `operations` an iteration.
void ReportRates(benchmark::State& state, double bytes, double operations);

// A weight [rows, cols] with random content; role kGateUp: two blocks of rows / 2.
class RandomLinear {
 public:
  RandomLinear(const quant::Format& format, int64_t rows, int64_t cols, backend::LinearRole role);
  const backend::PreparedLinear* prepared() const { return prepared_.get(); }
  double bytes() const { return bytes_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 private:
  int64_t rows_;
  int64_t cols_;
  double bytes_ = 0.0;
  std::vector<std::unique_ptr<std::vector<uint16_t>>> memory_;
  std::unique_ptr<backend::PreparedLinear> prepared_;
};

// F32 buffers hold values in [-1, 1).
std::unique_ptr<backend::Buffer> NewBuffer(int64_t rows, int64_t cols, quant::DType dtype);

inline backend::SessionStateSpec TinyState() { return {.max_sessions = 1, .encoder = {}, .decoder = {}}; }

struct StreamRig {
  StreamRig(const backend::SessionStateSpec& spec, int64_t encoder_rows, int64_t decoder_rows);
  std::unique_ptr<backend::SessionState> state;
  std::unique_ptr<backend::Stream> stream;
};

// Whole encoder and decoder passes (micro_cpu_stack.cc).
void RegisterStacks();

}  // namespace voxrt::bench
