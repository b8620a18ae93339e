#include "backend/cuda/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace voxrt::cuda {

PoolShares ShareMemory(int64_t budget, int sessions, int64_t encoder, int64_t decoder) {
  const int64_t all_encoder = encoder * sessions, all_decoder = decoder * sessions;
  if (all_encoder + all_decoder <= budget) return {};
  // Each pool holds one session at least; what the decoder cannot use is the encoder's.
  const int64_t wanted = std::max(std::min(all_encoder, budget / 3 * 2), budget - all_decoder);
  const int64_t bytes = std::clamp(wanted, encoder, budget - decoder);
  auto share = [](int64_t part, int64_t whole) {
    return whole == 0 ? 1.0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
  };
  return {share(bytes, all_encoder), share(budget - bytes, all_decoder)};
}

PagePool::PagePool(int slots, int pages_per_slot, int pages)
    : pages_per_slot_(pages_per_slot),
      table_(static_cast<size_t>(slots) * static_cast<size_t>(pages_per_slot), 0),
      held_(static_cast<size_t>(slots), 0) {
  for (int32_t page = pages - 1; page >= 1; --page) free_.push_back(page);
}

bool PagePool::Grow(int slot, int count, int* begin, int* end) {
  VOXRT_CHECK(count <= pages_per_slot_);
  int& held = held_[static_cast<size_t>(slot)];
  *begin = *end = held;
  if (count <= held) return true;
  if (count - held > free_pages()) return false;
  while (held < count) {
    table_[static_cast<size_t>(slot) * static_cast<size_t>(pages_per_slot_) + static_cast<size_t>(held++)] =
        free_.back();
    free_.pop_back();
  }
  *end = held;
  return true;
}

void PagePool::Release(int slot) {
  int& held = held_[static_cast<size_t>(slot)];
  while (held > 0) {
    int32_t& page =
        table_[static_cast<size_t>(slot) * static_cast<size_t>(pages_per_slot_) + static_cast<size_t>(--held)];
    free_.push_back(page);
    page = 0;
  }
}

}  // namespace voxrt::cuda
