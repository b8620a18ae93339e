#include "backend/cuda/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/error.h"

namespace voxrt::cuda {

DeviceBlock::~DeviceBlock() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

Result<DeviceBlock> DeviceBlock::Allocate(int64_t bytes, std::string_view what) {
  size_t free = 0;
  size_t total = 0;
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaMemGetInfo(&free, &total), "cannot ask the GPU for its free memory"));
  if (static_cast<size_t>(bytes) > free) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} needs {} of GPU memory, {} of {} are free", what, FormatBytes(bytes),
                              FormatBytes(static_cast<int64_t>(free)), FormatBytes(static_cast<int64_t>(total))));
  }
  DeviceBlock block;
  const cudaError_t error = cudaMalloc(&block.data_, static_cast<size_t>(std::max<int64_t>(bytes, 256)));
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return ToStatus(error, fmt::format("cannot allocate {} for {}", FormatBytes(bytes), what));
  }
  block.bytes_ = bytes;
  return block;
}

PinnedBlock::~PinnedBlock() {
  if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
}

Result<PinnedBlock> PinnedBlock::Allocate(int64_t bytes) {
  PinnedBlock block;
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaHostAlloc(&block.data_, static_cast<size_t>(bytes), cudaHostAllocMapped),
                                 "cannot allocate pinned host memory"));
  block.bytes_ = bytes;
  return block;
}

Result<void*> Slabs::Allocate(int64_t bytes, std::string_view what) {
  constexpr int64_t kSlabBytes = int64_t{256} << 20;
  const int64_t rounded = (bytes + 255) / 256 * 256;
  if (blocks_.empty() || used_ + rounded > blocks_.back().bytes()) {
    // A weight larger than a slab gets its own block, in front, so that the open slab stays open.
    if (rounded > kSlabBytes / 4) {
      VOXRT_ASSIGN_OR_RETURN(DeviceBlock block, DeviceBlock::Allocate(rounded, what));
      void* data = block.as<void>();
      blocks_.insert(blocks_.begin(), std::move(block));
      if (blocks_.size() == 1) used_ = rounded;
      return data;
    }
    VOXRT_ASSIGN_OR_RETURN(DeviceBlock block, DeviceBlock::Allocate(kSlabBytes, what));
    blocks_.push_back(std::move(block));
    used_ = 0;
  }
  void* data = blocks_.back().as<std::byte>() + used_;
  used_ += rounded;
  return data;
}

int64_t Slabs::bytes() const {
  int64_t total = 0;
  for (const DeviceBlock& block : blocks_) total += block.bytes();
  return total;
}

}  // namespace voxrt::cuda
