// Device state of all sessions: paged K/V rings of encoder and decoder, convolution tails, last tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/page_pool.h"
#include "backend/device.h"

namespace voxrt::cuda {

class CudaSessionState final : public backend::SessionState {
 public:
  static Result<std::unique_ptr<backend::SessionState>> Create(const backend::SessionStateSpec& spec);
  ~CudaSessionState() override;

  void Clear(int slot) override;
  Status Reserve(int slot, backend::KvId kv, int64_t end) override;
  void Release(int slot) override;
  int64_t BytesNow(int slot) const override;
  int64_t BytesAtMost() const override;

  const backend::SessionStateSpec& spec() const { return spec_; }
  const backend::KvSpec& kv(backend::KvId id) const {
    return id == backend::KvId::kEncoder ? spec_.encoder : spec_.decoder;
  }
  // The rings of one layer, as kernels see them.
  cuda_kernels::CacheRef cache(backend::KvId id, int layer) const;
  int64_t layer_bytes(backend::KvId id) const { return rings_[static_cast<size_t>(id)].layer_bytes; }
  int64_t layer_scales(backend::KvId id) const { return rings_[static_cast<size_t>(id)].layer_scales; }
  float* tail(int index) const { return tails_[index].as<float>(); }
  int32_t* tokens() const { return tokens_.as<int32_t>(); }
  int pages_for(backend::KvId id, int64_t end) const;

 private:
  struct Ring {
    int capacity = 0;                                           // tokens
    int64_t page_bytes = 0, layer_bytes = 0, layer_scales = 0;  // page_bytes: one page, one layer, scales included
    DeviceBlock data, scale, table;
    std::unique_ptr<PagePool> pool;
  };

  explicit CudaSessionState(const backend::SessionStateSpec& spec) : spec_(spec) {}
  Status Init();
  Status InitRing(backend::KvId id, int pages);

  backend::SessionStateSpec spec_;
  Ring rings_[2];
  DeviceBlock tails_[2];
  DeviceBlock tokens_;
  cudaStream_t stream_ = nullptr;
  mutable std::mutex mutex_;  // of the pools: sessions are opened while a tick runs
};

}  // namespace voxrt::cuda
