#include "backend/cuda/page_pool.h"

#include "base/check.h"

namespace voxrt::cuda {

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
