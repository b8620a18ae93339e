// Implementation of the test rig.
#include "support/rig.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "backend/registry.h"
#include "base/check.h"

namespace voxrt::test {
namespace {

using backend::BatchPlan;
using backend::View;
using quant::DType;

constexpr int64_t kMaxRows = 512;  // of a call

}  // namespace

std::vector<std::byte> EncodeFloats(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * quant::DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t half = dtype == DType::kBF16 ? quant::F32ToBF16(values[i]) : quant::F32ToF16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }
  return bytes;
}

Matrix Matrix::Rows(int64_t begin, int64_t count) const {
  Matrix part(count, cols);
  std::copy_n(values.begin() + begin * cols, count * cols, part.values.begin());
  return part;
}

uint32_t Random::Bits() {  // splitmix64
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

float Random::Uniform(float low, float high) {
  return low + (high - low) * static_cast<float>(Bits() >> 8) * (1.0f / 16777216.0f);
}

float Random::Normal() {  // sum of 12 uniforms: close enough, and the same on every machine
  float sum = -6.0f;
  for (int i = 0; i < 12; ++i) sum += Uniform(0.0f, 1.0f);
  return sum;
}

Matrix Random::Normals(int64_t rows, int64_t cols, float scale) {
  Matrix m(rows, cols);
  for (float& value : m.values) value = Normal() * scale;
  return m;
}

BatchPlan MakePlan(const std::vector<GroupSpec>& groups, int head_dim) {
  BatchPlan plan;
  for (const GroupSpec& g : groups) {
    plan.groups.push_back({.slot = g.slot, .row_begin = plan.rows, .row_count = g.rows, .first_index = g.first_index});
    for (int r = 0; r < g.rows; ++r) {
      for (int i = 0; i < head_dim / 2; ++i) {
        const auto frequency = static_cast<float>(std::pow(1e6, -2.0 * i / head_dim));
        const double angle = static_cast<double>(g.first_index + r) * static_cast<double>(frequency);
        plan.rope_cos.push_back(static_cast<float>(std::cos(angle)));
        plan.rope_sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    plan.rows += g.rows;
  }
  return plan;
}

backend::SessionStateSpec SmallState(int64_t encoder_window, int64_t decoder_window, DType kv_dtype) {
  return {.max_sessions = 3,
          .encoder =
              {.layers = 1, .kv_heads = 2, .head_dim = 64, .window = encoder_window, .max_rows = 4, .dtype = kv_dtype},
          .decoder =
              {.layers = 1, .kv_heads = 2, .head_dim = 128, .window = decoder_window, .max_rows = 8, .dtype = kv_dtype},
          .conv_channels = {16, 24}};
}

std::unique_ptr<Rig> Rig::Open(const std::string& backend, const backend::SessionStateSpec& state, std::string* why,
                               const backend::DeviceOptions& options) {
  static std::map<std::tuple<std::string, int, int, bool>, std::shared_ptr<backend::Device>> opened;
  const std::tuple key(backend, options.ordinal, options.threads, options.head_scan);
  if (opened.count(key) == 0) {
    auto device = backend::OpenDevice(backend, options);
    if (!device.ok()) {
      *why = device.status().message();
      return nullptr;
    }
    opened[key] = std::move(device).value();
  }
  auto rig = std::make_unique<Rig>();
  rig->device_ = opened[key];
  rig->ResetState(state);
  return rig;
}

void Rig::ResetState(const backend::SessionStateSpec& state) {
  auto made = device_->CreateSessionState(state);
  VOXRT_CHECK(made.ok());
  state_ = std::move(made).value();
}

View Rig::Own(int64_t rows, int64_t cols, DType dtype) {
  auto made = device_->Allocate(rows, cols, dtype);
  VOXRT_CHECK(made.ok());
  buffers_.push_back(std::move(made).value());
  return buffers_.back()->view();
}

View Rig::Put(const Matrix& m, DType dtype, int64_t pad) {
  const View view = Poisoned(m.rows, m.cols, dtype, pad);
  const std::vector<std::byte> bytes = EncodeFloats(m.values, dtype);
  VOXRT_CHECK(device_->Write(view, bytes.data()).ok());
  return view;
}

View Rig::Poisoned(int64_t rows, int64_t cols, DType dtype, int64_t pad) {
  const View whole = Own(rows, cols + pad, dtype);
  const std::vector<float> nan(static_cast<size_t>(rows * (cols + pad)), std::numeric_limits<float>::quiet_NaN());
  VOXRT_CHECK(device_->Write(whole, EncodeFloats(nan, dtype).data()).ok());
  return whole.Cols(0, cols);
}

View Rig::PoisonedInts(int64_t rows) {
  const View view = Own(rows, 1, DType::kI32);
  const std::vector<int32_t> values(static_cast<size_t>(rows), -12345);
  VOXRT_CHECK(device_->Write(view, values.data()).ok());
  return view;
}

Matrix Rig::Get(const View& view) {
  std::vector<std::byte> bytes(static_cast<size_t>(view.rows * view.cols) * quant::DTypeBytes(view.dtype));
  VOXRT_CHECK(NewStream()->Readback(view, bytes.data()).ok());
  Matrix m(view.rows, view.cols);
  for (size_t i = 0; i < m.values.size(); ++i) m.values[i] = quant::LoadFloat(bytes.data(), view.dtype, i);
  return m;
}

std::vector<int32_t> Rig::GetInts(const View& view) {
  std::vector<int32_t> values(static_cast<size_t>(view.rows));
  VOXRT_CHECK(NewStream()->Readback(view, values.data()).ok());
  return values;
}

std::unique_ptr<backend::Stream> Rig::NewStream() {
  auto made =
      device_->CreateStream({.max_encoder_rows = kMaxRows, .max_decoder_rows = kMaxRows, .state = state_.get()});
  VOXRT_CHECK(made.ok());
  return std::move(made).value();
}

void Rig::Run(const BatchPlan* encoder, const BatchPlan* decoder, const std::function<void(backend::Stream&)>& emit) {
  RunPadded(0, encoder, decoder, emit);
}

void Rig::RunPadded(int64_t padded_rows, const BatchPlan* encoder, const BatchPlan* decoder,
                    const std::function<void(backend::Stream&)>& emit) {
  const auto stream = NewStream();
  backend::RunKey key{.kind = encoder == nullptr   ? backend::RunKind::kDecode
                              : decoder == nullptr ? backend::RunKind::kEncode
                                                   : backend::RunKind::kLiveTick};
  if (encoder != nullptr) {
    stream->SetPlan(backend::PlanId::kEncoder, *encoder);
    key.encoder_rows = std::max<int64_t>(encoder->rows, padded_rows);
  }
  if (decoder != nullptr) {
    stream->SetPlan(backend::PlanId::kDecoder, *decoder);
    key.decoder_rows = std::max<int64_t>(decoder->rows, padded_rows);
    key.head_rows = static_cast<int64_t>(decoder->head_rows.size());
  }
  stream->Run(key, emit);
  VOXRT_CHECK(stream->Sync().ok());
}

void Rig::CloneState(int from, int to, int64_t encoder_end, int64_t decoder_end) {
  const auto stream = NewStream();
  stream->CloneState(from, to, encoder_end, decoder_end);
  VOXRT_CHECK(stream->Sync().ok());
}

}  // namespace voxrt::test
