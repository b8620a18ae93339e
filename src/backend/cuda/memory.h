// Device memory: owned blocks, and slabs for the many weights of a model. Needed and free bytes are compared before
// asking.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace voxrt::cuda {

// A cudaMalloc block; freed with the object.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(DeviceBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBlock();

  // kResourceExhausted names `what`, the bytes needed and the bytes free.
  static Result<DeviceBlock> Allocate(int64_t bytes, std::string_view what);

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Pinned host memory that the device can read and write in place.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  PinnedBlock(PinnedBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBlock();

  static Result<PinnedBlock> Allocate(int64_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Hands out 256-byte aligned pieces of large blocks; everything is freed together.
class Slabs {
 public:
  Result<void*> Allocate(int64_t bytes, std::string_view what);
  int64_t bytes() const;

 private:
  std::vector<DeviceBlock> blocks_;
  int64_t used_ = 0;  // of the last block
};

}  // namespace voxrt::cuda
