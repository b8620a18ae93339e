// Implementation of the ref backend's session state.
#include "backend/ref/state.h"

#include <algorithm>
#include <limits>
#include <new>
#include <span>
#include <string>

#include "backend/checks.h"
#include "backend/kv_int8.h"
#include "base/check.h"

namespace voxrt::backend {
namespace {

using quant::DType;

constexpr std::byte kPoison{0xff};  // all bits set: a NaN in F32 and BF16
constexpr float kPoisonScale = std::numeric_limits<float>::quiet_NaN();

}  // namespace

KvRing::KvRing(const KvSpec& spec)
    : spec_(spec), capacity_(MinRingRows(spec)), data_(planes()), scale_(spec.dtype == DType::kI8 ? planes() : 0) {}

void KvRing::Reserve(int64_t end) {
  const int64_t wanted = std::min(end, capacity_);
  if (wanted <= reserved_) return;
  for (auto& plane : data_) {
    plane.resize(static_cast<size_t>(wanted) * row_values() * quant::DTypeBytes(spec_.dtype), kPoison);
  }
  for (auto& plane : scale_)
    plane.resize(static_cast<size_t>(wanted) * static_cast<size_t>(spec_.kv_heads), kPoisonScale);
  reserved_ = wanted;
}

void KvRing::Release() {
  for (auto& plane : data_) std::vector<std::byte>().swap(plane);
  for (auto& plane : scale_) std::vector<float>().swap(plane);
  reserved_ = 0;
}

void KvRing::Poison() {
  for (auto& plane : data_) std::fill(plane.begin(), plane.end(), kPoison);
  for (auto& plane : scale_) std::fill(plane.begin(), plane.end(), kPoisonScale);
}

size_t KvRing::Slot(int layer, int64_t index) const {
  const int64_t slot = index % capacity_;
  VOXRT_CHECK(layer >= 0 && layer < spec_.layers);
  VOXRT_CHECK(index >= 0 && slot < reserved_);  // else the caller forgot SessionState::Reserve
  return static_cast<size_t>(slot);
}

void KvRing::Write(int layer, bool is_v, int64_t index, const float* values) {
  const size_t slot = Slot(layer, index);
  const size_t plane = static_cast<size_t>(layer) * 2 + (is_v ? 1 : 0);
  std::byte* row = data_[plane].data() + slot * row_values() * quant::DTypeBytes(spec_.dtype);
  switch (spec_.dtype) {
    case DType::kBF16:
      for (size_t i = 0; i < row_values(); ++i) reinterpret_cast<uint16_t*>(row)[i] = quant::F32ToBF16(values[i]);
      return;
    case DType::kI8: {
      const auto dim = static_cast<size_t>(spec_.head_dim);
      for (size_t head = 0; head < static_cast<size_t>(spec_.kv_heads); ++head) {
        scale_[plane][slot * static_cast<size_t>(spec_.kv_heads) + head] =
            EncodeKvInt8({values + head * dim, dim}, {reinterpret_cast<int8_t*>(row) + head * dim, dim});
      }
      return;
    }
    default:
      std::copy(values, values + row_values(), reinterpret_cast<float*>(row));
      return;
  }
}

void KvRing::Read(int layer, bool is_v, int64_t index, int head, float* out) const {
  const size_t slot = Slot(layer, index);
  const size_t plane = static_cast<size_t>(layer) * 2 + (is_v ? 1 : 0);
  const auto dim = static_cast<size_t>(spec_.head_dim);
  const size_t first = slot * row_values() + static_cast<size_t>(head) * dim;  // element of the plane
  if (spec_.dtype != DType::kI8) {
    for (size_t i = 0; i < dim; ++i) out[i] = quant::LoadFloat(data_[plane].data(), spec_.dtype, first + i);
    return;
  }
  const float scale = scale_[plane][slot * static_cast<size_t>(spec_.kv_heads) + static_cast<size_t>(head)];
  const auto* codes = reinterpret_cast<const int8_t*>(data_[plane].data()) + first;
  for (size_t i = 0; i < dim; ++i) out[i] = static_cast<float>(codes[i]) * scale;
}

void KvRing::CopyFrom(const KvRing& other, int64_t end) {
  const int64_t rows = std::min(end, capacity_);
  VOXRT_CHECK(rows <= reserved_ && rows <= other.reserved_);
  const size_t bytes = static_cast<size_t>(rows) * row_values() * quant::DTypeBytes(spec_.dtype);
  const size_t scales = static_cast<size_t>(rows) * static_cast<size_t>(spec_.kv_heads);
  Poison();
  for (size_t p = 0; p < data_.size(); ++p) std::copy_n(other.data_[p].begin(), bytes, data_[p].begin());
  for (size_t p = 0; p < scale_.size(); ++p) std::copy_n(other.scale_[p].begin(), scales, scale_[p].begin());
}

int64_t KvRing::bytes() const {
  int64_t total = 0;
  for (const auto& plane : data_) total += static_cast<int64_t>(plane.size());
  for (const auto& plane : scale_) total += static_cast<int64_t>(plane.size() * sizeof(float));
  return total;
}

int64_t KvRing::bytes_at_most() const {
  const size_t row = row_values() * quant::DTypeBytes(spec_.dtype) +
                     (scale_.empty() ? 0 : static_cast<size_t>(spec_.kv_heads) * sizeof(float));
  return spec_.layers == 0 ? 0 : static_cast<int64_t>(planes() * row) * capacity_;
}

RefSession::RefSession(const SessionStateSpec& spec) : encoder(spec.encoder), decoder(spec.decoder) {
  conv_tail[0].assign(static_cast<size_t>(spec.conv_channels[0]) * 2, 0.0f);
  conv_tail[1].assign(static_cast<size_t>(spec.conv_channels[1]), 0.0f);
}

RefSessionState::RefSessionState(const SessionStateSpec& spec) : spec_(spec) {
  for (int slot = 0; slot < spec.max_sessions; ++slot) sessions_.emplace_back(spec);
}

RefSession& RefSessionState::session(int slot) {
  VOXRT_CHECK(slot >= 0 && slot < spec_.max_sessions);
  return sessions_[static_cast<size_t>(slot)];
}

const RefSession& RefSessionState::session(int slot) const {
  VOXRT_CHECK(slot >= 0 && slot < spec_.max_sessions);
  return sessions_[static_cast<size_t>(slot)];
}

void RefSessionState::Clear(int slot) {
  RefSession& s = session(slot);
  s.encoder.Poison();
  s.decoder.Poison();
  for (auto& tail : s.conv_tail) std::fill(tail.begin(), tail.end(), 0.0f);
  s.last_token = -1;
}

Status RefSessionState::Reserve(int slot, KvId kv, int64_t end) {
  RefSession& s = session(slot);
  KvRing& ring = kv == KvId::kEncoder ? s.encoder : s.decoder;
  try {
    ring.Reserve(end);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for the K/V cache of slot " + std::to_string(slot) + " up to row " + std::to_string(end));
  }
  return Status();
}

void RefSessionState::Release(int slot) {
  Clear(slot);
  session(slot).encoder.Release();
  session(slot).decoder.Release();
}

int64_t RefSessionState::FixedBytes() const {
  return (2 * spec_.conv_channels[0] + spec_.conv_channels[1]) * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(sizeof(int32_t));
}

int64_t RefSessionState::BytesNow(int slot) const {
  return FixedBytes() + session(slot).encoder.bytes() + session(slot).decoder.bytes();
}

int64_t RefSessionState::BytesAtMost() const {
  return FixedBytes() + KvRing(spec_.encoder).bytes_at_most() + KvRing(spec_.decoder).bytes_at_most();
}

}  // namespace voxrt::backend
