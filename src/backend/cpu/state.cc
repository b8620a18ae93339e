#include "backend/cpu/state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace voxrt::backend::cpu {
namespace {

constexpr size_t kPageAlignment = 64;
constexpr int64_t kTailRows[2] = {2, 1};

PageMemory TakePage(int64_t bytes) {
  const size_t size = (static_cast<size_t>(bytes) + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
  return PageMemory(static_cast<std::byte*>(std::aligned_alloc(kPageAlignment, size)));
}

}  // namespace

void FreeDeleter::operator()(std::byte* data) const { std::free(data); }

KvPages::KvPages(const KvSpec& spec)
    : spec_(spec),
      layout_{spec.dtype, spec.head_dim},
      page_count_((spec.window - 1 + spec.max_rows + kKvBlock - 1) / kKvBlock) {}

int64_t KvPages::PagesFor(int64_t end) const {
  return std::clamp<int64_t>((end + kKvBlock - 1) / kKvBlock, 0, page_count_);
}

CpuSessionState::CpuSessionState(const SessionStateSpec& spec)
    : spec_(spec), kv_{KvPages(spec.encoder), KvPages(spec.decoder)}, slots_(static_cast<size_t>(spec.max_sessions)) {
  for (Slot& slot : slots_) {
    for (size_t i = 0; i < 2; ++i) {
      slot.pages[i].resize(static_cast<size_t>(kv_[i].page_count()));
      slot.table[i].resize(slot.pages[i].size(), nullptr);
      slot.tail[i].resize(static_cast<size_t>(kTailRows[i] * spec.conv_channels[i]), 0.0f);
    }
  }
}

const CpuSessionState::Slot& CpuSessionState::slot_at(int slot) const {
  VOXRT_CHECK(slot >= 0 && slot < slots());
  return slots_[static_cast<size_t>(slot)];
}

CpuSessionState::Slot& CpuSessionState::slot_at(int slot) {
  VOXRT_CHECK(slot >= 0 && slot < slots());
  return slots_[static_cast<size_t>(slot)];
}

void CpuSessionState::Clear(int slot) {
  Slot& s = slot_at(slot);
  for (std::vector<float>& tail : s.tail) std::fill(tail.begin(), tail.end(), 0.0f);
  s.token = -1;
}

Status CpuSessionState::Reserve(int slot, KvId kv, int64_t end) {
  Slot& s = slot_at(slot);
  const auto id = static_cast<size_t>(kv);
  const auto wanted = static_cast<size_t>(kv_[id].PagesFor(end));
  for (size_t i = 0; i < wanted; ++i) {
    if (s.pages[id][i] != nullptr) continue;
    s.pages[id][i] = TakePage(kv_[id].page_bytes());
    if (s.pages[id][i] == nullptr) {
      return {StatusCode::kResourceExhausted, "out of memory: a K/V page of " + std::to_string(kv_[id].page_bytes()) +
                                                  " bytes; close sessions or use a smaller --kv-type"};
    }
    s.table[id][i] = s.pages[id][i].get();
  }
  return {};
}

void CpuSessionState::Release(int slot) {
  Clear(slot);
  Slot& s = slot_at(slot);
  for (size_t id = 0; id < 2; ++id) {
    for (PageMemory& page : s.pages[id]) page.reset();
    std::fill(s.table[id].begin(), s.table[id].end(), nullptr);
  }
}

int64_t CpuSessionState::PagesTaken(int slot, KvId id) const {
  const std::vector<std::byte*>& table = slot_at(slot).table[static_cast<size_t>(id)];
  return std::find(table.begin(), table.end(), nullptr) - table.begin();
}

int64_t CpuSessionState::TailBytes() const {
  return (kTailRows[0] * spec_.conv_channels[0] + kTailRows[1] * spec_.conv_channels[1]) *
         static_cast<int64_t>(sizeof(float));
}

int64_t CpuSessionState::BytesNow(int slot) const {
  return PagesTaken(slot, KvId::kEncoder) * kv_[0].page_bytes() +
         PagesTaken(slot, KvId::kDecoder) * kv_[1].page_bytes() + TailBytes();
}

int64_t CpuSessionState::BytesAtMost() const {
  return kv_[0].page_count() * kv_[0].page_bytes() + kv_[1].page_count() * kv_[1].page_bytes() + TailBytes();
}

void CpuSessionState::Copy(int from, int to, int64_t encoder_end, int64_t decoder_end) {
  const Slot& source = slot_at(from);
  Slot& destination = slot_at(to);
  const int64_t ends[2] = {encoder_end, decoder_end};
  for (size_t id = 0; id < 2; ++id) {
    const auto pages = static_cast<size_t>(kv_[id].PagesFor(ends[id]));
    for (size_t i = 0; i < pages; ++i) {
      VOXRT_CHECK(source.pages[id][i] != nullptr && destination.pages[id][i] != nullptr);
      std::memcpy(destination.pages[id][i].get(), source.pages[id][i].get(), static_cast<size_t>(kv_[id].page_bytes()));
    }
    destination.tail[id] = source.tail[id];
  }
  destination.token = source.token;
}

}  // namespace voxrt::backend::cpu
