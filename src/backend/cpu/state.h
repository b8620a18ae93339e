// Device state of the sessions of a stream: K/V rings in pages taken lazily, convolution tails, last token.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/device.h"

namespace voxrt::backend::cpu {

// A page holds kKvBlock consecutive rows of all layers and heads of one stack.
class KvPages {
 public:
  explicit KvPages(const KvSpec& spec);

  const KvSpec& spec() const { return spec_; }
  const KvLayout& layout() const { return layout_; }
  int64_t page_count() const { return page_count_; }  // of a full ring
  int64_t page_bytes() const { return spec_.layers * spec_.kv_heads * layout_.bytes(); }
  int64_t Offset(int layer, int head) const { return (int64_t{layer} * spec_.kv_heads + head) * layout_.bytes(); }
  // Pages that rows with index < end touch.
  int64_t PagesFor(int64_t end) const;

 private:
  KvSpec spec_;
  KvLayout layout_;
  int64_t page_count_;
};

struct FreeDeleter {
  void operator()(std::byte* data) const;
};
using PageMemory = std::unique_ptr<std::byte, FreeDeleter>;

class CpuSessionState : public SessionState {
 public:
  explicit CpuSessionState(const SessionStateSpec& spec);

  void Clear(int slot) override;
  Status Reserve(int slot, KvId kv, int64_t end) override;
  void Release(int slot) override;
  int64_t BytesNow(int slot) const override;
  int64_t BytesAtMost() const override;

  const SessionStateSpec& spec() const { return spec_; }
  int slots() const { return static_cast<int>(slots_.size()); }
  const KvPages& kv(KvId id) const { return kv_[static_cast<size_t>(id)]; }
  // [page_count] of the slot, null behind the pages taken so far.
  std::byte* const* Pages(int slot, KvId id) const { return slot_at(slot).table[static_cast<size_t>(id)].data(); }
  int64_t PagesTaken(int slot, KvId id) const;
  // The last tail_rows input frames of convolution `index` (0: 2 rows, 1: 1 row): [tail rows, channels].
  float* Tail(int slot, int index) { return slot_at(slot).tail[index].data(); }
  int64_t conv_channels(int index) const { return spec_.conv_channels[index]; }
  int32_t& Token(int slot) { return slot_at(slot).token; }
  // All of `from` (rows with index < the ends) to `to`, whose pages are reserved.
  void Copy(int from, int to, int64_t encoder_end, int64_t decoder_end);

 private:
  struct Slot {
    std::vector<PageMemory> pages[2];
    std::vector<std::byte*> table[2];  // the same pages as the kernels take them
    std::vector<float> tail[2];
    int32_t token = -1;
  };
  const Slot& slot_at(int slot) const;
  Slot& slot_at(int slot);
  int64_t TailBytes() const;

  SessionStateSpec spec_;
  KvPages kv_[2];
  std::vector<Slot> slots_;
};

}  // namespace voxrt::backend::cpu
