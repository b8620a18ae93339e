// Which pages of a K/V pool belong to which session. Pure host code: numbers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace voxrt::cuda {

// Shares of full rings for all sessions that the two pools get of `budget` bytes; `encoder` and `decoder`: bytes of one
// session's full rings, together at most the budget. Every session fills its encoder ring within seconds and its
// decoder ring within minutes, most never: where memory does not hold all, the encoder goes first, up to two thirds.
struct PoolShares {
  double encoder = 1.0;
  double decoder = 1.0;
};
PoolShares ShareMemory(int64_t budget, int sessions, int64_t encoder, int64_t decoder);

// Page 0 is never given away: table entries without a page point to it.
class PagePool {
 public:
  PagePool(int slots, int pages_per_slot, int pages);

  // Gives `slot` its first `count` pages; false (and nothing changes) when there are not enough. `changed` = [begin,
  // end) of new entries.
  bool Grow(int slot, int count, int* begin, int* end);
  void Release(int slot);

  int pages_of(int slot) const { return held_[static_cast<size_t>(slot)]; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  int pages_per_slot() const { return pages_per_slot_; }
  const int32_t* row(int slot) const {
    return table_.data() + static_cast<size_t>(slot) * static_cast<size_t>(pages_per_slot_);
  }

 private:
  int pages_per_slot_;
  std::vector<int32_t> table_;  // [slots][pages_per_slot]
  std::vector<int> held_;
  std::vector<int32_t> free_;  // taken from the back
};

}  // namespace voxrt::cuda
