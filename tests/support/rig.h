// Rig: one device of a backend with session state, and helpers to move matrices in and out: what the tests of the
// backend contract run on. Every operation list runs on a stream of its own, because a stream may replay what it
// recorded for a key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/stream.h"

namespace voxrt::test {

// Host matrix, row-major.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  float& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * cols + c)]; }
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
  Matrix Rows(int64_t begin, int64_t count) const;
};

// Deterministic test data.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t Bits();
  float Uniform(float low, float high);
  float Normal();
  int64_t Below(int64_t n) { return static_cast<int64_t>(Bits() % static_cast<uint64_t>(n)); }
  Matrix Normals(int64_t rows, int64_t cols, float scale = 1.0f);

 private:
  uint64_t state_;
};

// Values as stored elements of F32, BF16 or F16.
std::vector<std::byte> EncodeFloats(const std::vector<float>& values, quant::DType dtype);

struct GroupSpec {
  int slot = 0;
  int rows = 1;
  int64_t first_index = 0;
};

// Groups in order with rotary phases of their true positions.
backend::BatchPlan MakePlan(const std::vector<GroupSpec>& groups, int head_dim);

// A small state: 3 slots, encoder 1 layer of 2 heads x 64, decoder of 2 K/V heads x 128; windows as given.
backend::SessionStateSpec SmallState(int64_t encoder_window, int64_t decoder_window,
                                     quant::DType kv_dtype = quant::DType::kF32);

class Rig {
 public:
  // Empty pointer and the reason in *why where the device cannot be opened. Devices are opened once and shared.
  static std::unique_ptr<Rig> Open(const std::string& backend, const backend::SessionStateSpec& state, std::string* why,
                                   const backend::DeviceOptions& options = {});

  backend::Device& device() { return *device_; }
  backend::SessionState& state() { return *state_; }
  // Replaces the session state (all slots new).
  void ResetState(const backend::SessionStateSpec& state);

  // Device memory that lives as long as the rig. `pad` extra columns make the view strided; they hold NaN.
  backend::View Put(const Matrix& m, quant::DType dtype = quant::DType::kF32, int64_t pad = 0);
  backend::View Poisoned(int64_t rows, int64_t cols, quant::DType dtype = quant::DType::kF32, int64_t pad = 0);
  backend::View PoisonedInts(int64_t rows);
  Matrix Get(const backend::View& view);
  std::vector<int32_t> GetInts(const backend::View& view);

  std::unique_ptr<backend::Stream> NewStream();
  // Runs `emit` once on a new stream with these plans (nullptr = none).
  void Run(const backend::BatchPlan* encoder, const backend::BatchPlan* decoder,
           const std::function<void(backend::Stream&)>& emit);
  // As Run, with views that may be made for `padded_rows` rows of each given plan (a larger key than the plans fill).
  void RunPadded(int64_t padded_rows, const backend::BatchPlan* encoder, const backend::BatchPlan* decoder,
                 const std::function<void(backend::Stream&)>& emit);
  void CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end);

 private:
  backend::View Own(int64_t rows, int64_t cols, quant::DType dtype);

  std::shared_ptr<backend::Device> device_;  // shared by all rigs of the process: opening one may take long
  std::unique_ptr<backend::SessionState> state_;
  std::vector<std::unique_ptr<backend::Buffer>> buffers_;
};

}  // namespace voxrt::test
