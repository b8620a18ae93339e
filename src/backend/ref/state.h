// Session state of the ref backend: K/V rings as stored, convolution tails, last token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/device.h"

namespace voxrt::backend {

// K and V of all layers of one session and one stack. Row `index` lies in slot index mod capacity. Memory that was
// never written, or was released or cleared, holds NaN: reading it shows in every result.
class KvRing {
 public:
  explicit KvRing(const KvSpec& spec);

  // Room for rows with index < end; throws std::bad_alloc.
  void Reserve(int64_t end);
  void Release();
  void Poison();
  // values: [kv_heads * head_dim], rounded to the cache's type.
  void Write(int layer, bool is_v, int64_t index, const float* values);
  // One head of one row as attention sees it: out[0..head_dim).
  void Read(int layer, bool is_v, int64_t index, int head, float* out) const;
  // Rows with index < end of `other`, which has the same spec.
  void CopyFrom(const KvRing& other, int64_t end);

  int64_t bytes() const;  // held now
  int64_t bytes_at_most() const;

 private:
  size_t Slot(int layer, int64_t index) const;
  size_t row_values() const { return static_cast<size_t>(spec_.kv_heads) * static_cast<size_t>(spec_.head_dim); }
  size_t planes() const { return static_cast<size_t>(spec_.layers) * 2; }

  KvSpec spec_;
  int64_t capacity_ = 0;
  int64_t reserved_ = 0;  // rows held, <= capacity_
  // Plane (layer, K or V): [reserved_, kv_heads, head_dim] of spec_.dtype, and for kI8 the scales [reserved_,
  // kv_heads].
  std::vector<std::vector<std::byte>> data_;
  std::vector<std::vector<float>> scale_;
};

struct RefSession {
  explicit RefSession(const SessionStateSpec& spec);

  KvRing encoder;
  KvRing decoder;
  std::vector<float> conv_tail[2];  // [2, conv_channels[0]] and [1, conv_channels[1]], oldest first
  int32_t last_token = -1;          // -1 = no arg-max yet
};

class RefSessionState final : public SessionState {
 public:
  explicit RefSessionState(const SessionStateSpec& spec);

  void Clear(int slot) override;
  Status Reserve(int slot, KvId kv, int64_t end) override;
  void Release(int slot) override;
  int64_t BytesNow(int slot) const override;
  int64_t BytesAtMost() const override;

  const SessionStateSpec& spec() const { return spec_; }
  RefSession& session(int slot);
  const RefSession& session(int slot) const;

 private:
  int64_t FixedBytes() const;  // tails and token: what a slot always holds

  SessionStateSpec spec_;
  std::vector<RefSession> sessions_;
};

}  // namespace voxrt::backend
