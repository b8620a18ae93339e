#include <cstdlib>

#include "backend/cpu/kernels.h"
#include "base/check.h"

namespace voxrt::backend::cpu {

Scratch::~Scratch() { std::free(data_); }

void* Scratch::Bytes(size_t bytes) {
  if (bytes <= size_) return data_;
  constexpr size_t kAlignment = 64;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::free(data_);
  data_ = std::aligned_alloc(kAlignment, rounded);
  VOXRT_CHECK(data_ != nullptr);  // a few hundred KiB beside the model
  size_ = rounded;
  return data_;
}

}  // namespace voxrt::backend::cpu
