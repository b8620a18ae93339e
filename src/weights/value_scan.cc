// All threads take blocks of a few megabytes from one list in file order. A block is tested eight bytes at a time: with
// the sign and mantissa masked off, adding one to the lowest exponent bit of each element carries into its top bit
// exactly when the exponent was all ones (NaN or infinity), and never into the neighbouring element. The loop has no
// branches and runs at memory speed.
#include "weights/value_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"

namespace voxrt::weights {
namespace {

using quant::DType;

constexpr int64_t kBlockBytes = int64_t{4} << 20;

struct Block {
  const std::string* name;
  const Tensor* tensor;
  int64_t offset;  // in the tensor
  int64_t bytes;
};

struct ExponentTest {
  uint64_t exponents;  // exponent bits of every element in 8 bytes
  uint64_t one;        // their lowest bit
  uint64_t carry;      // the top bits
};

ExponentTest TestFor(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {0x7f807f807f807f80u, 0x0080008000800080u, 0x8000800080008000u};
    case DType::kF16:
      return {0x7c007c007c007c00u, 0x0400040004000400u, 0x8000800080008000u};
    case DType::kF32:
      return {0x7f8000007f800000u, 0x0080000000800000u, 0x8000000080000000u};
    default:
      return {0, 0, 0};  // integers: read, nothing to find
  }
}

// Whether any element of [data, data + bytes) is NaN or infinite.
bool HasNonFinite(const std::byte* data, int64_t bytes, const ExponentTest& test) {
  uint64_t found = 0;
  const int64_t words = bytes / 8;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, data + i * 8, 8);
    found |= (word & test.exponents) + test.one;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, data + words * 8, static_cast<size_t>(bytes % 8));
  found |= (tail & test.exponents) + test.one;
  return (found & test.carry) != 0;
}

std::vector<Block> CutIntoBlocks(const TensorMap& tensors) {
  std::vector<Block> blocks;
  for (const auto& [name, tensor] : tensors) {
    for (int64_t offset = 0; offset < tensor.bytes; offset += kBlockBytes) {
      blocks.push_back({&name, &tensor, offset, std::min(kBlockBytes, tensor.bytes - offset)});
    }
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return std::less<>()(a.tensor->data + a.offset, b.tensor->data + b.offset);
  });
  return blocks;
}

Status NonFinite(const Block& block) {
  const Tensor& tensor = *block.tensor;
  const auto element_bytes = static_cast<int64_t>(quant::DTypeBytes(tensor.dtype));
  for (int64_t i = block.offset / element_bytes; i < (block.offset + block.bytes) / element_bytes; ++i) {
    const float value = quant::LoadFloat(tensor.data, tensor.dtype, static_cast<size_t>(i));
    if (std::isfinite(value)) continue;
    return Status(StatusCode::kInvalidModel, fmt::format("tensor {} holds {} at element {}", *block.name,
                                                         std::isnan(value) ? "NaN" : "infinity", i));
  }
  return Status(StatusCode::kInvalidModel, fmt::format("tensor {} changed while it was read", *block.name));
}

}  // namespace

Status ScanValues(const TensorMap& tensors, int threads, const std::function<void(int64_t, int64_t)>& progress) {
  const std::vector<Block> blocks = CutIntoBlocks(tensors);
  int64_t total = 0;
  for (const Block& block : blocks) total += block.bytes;
  std::atomic<size_t> next{0};
  std::atomic<size_t> first_bad{blocks.size()};
  std::atomic<int64_t> done{0};
  base::ThreadPool pool(threads);
  pool.Run([&](int worker, int /*workers*/) {
    for (size_t i = next++; i < blocks.size() && i < first_bad; i = next++) {
      const Block& block = blocks[i];
      if (HasNonFinite(block.tensor->data + block.offset, block.bytes, TestFor(block.tensor->dtype))) {
        size_t known = first_bad;
        while (i < known && !first_bad.compare_exchange_weak(known, i)) {
        }
      }
      const int64_t now = done += block.bytes;
      if (worker == 0 && progress) progress(now, total);
    }
  });
  if (first_bad < blocks.size()) return NonFinite(blocks[first_bad]);
  if (progress) progress(total, total);
  return Status();
}

}  // namespace voxrt::weights
