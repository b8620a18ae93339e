// FakeStepRunner: a StepRunner without a model, for tests of the scheduler. Its "network" is a chain of hashes: the
// audio row of a tick depends on every mel value of the slot so far, an output on every input token and audio row so
// far. So any row that is computed twice, skipped, out of order, from a wrong guess or in a wrong slot changes the
// tokens.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "engine/step_runner.h"

namespace voxrt::engine {

inline uint64_t MixHash(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull ^ (b + 0xD1B54A32D192ED03ull);
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

class FakeStepRunner : public StepRunner {
 public:
  static constexpr int32_t kPad = 32;
  explicit FakeStepRunner(const StepShape& shape) : shape_(shape), bulk_(static_cast<size_t>(shape.max_encode_ticks)) {}

  // Most outputs are pads, the rest are text ids 1000..1255.
  static int32_t TokenOf(uint64_t hash) { return hash % 3 != 0 ? kPad : static_cast<int32_t>(1000 + hash / 3 % 256); }

  Status Encode(std::span<const EncodeItem> items) override {
    size_t row = 0;
    for (const EncodeItem& item : items) {
      for (int64_t tick = 0; tick < item.ticks; ++tick) bulk_.at(row++) = EncodeTick(item, tick);
    }
    return Outcome();
  }
  Status Decode(std::span<const DecodeItem> items, bool with_logits, DecodeOutput* output) override {
    Run(items, bulk_, with_logits, output);
    return Outcome();
  }
  Status LiveTick(std::span<const EncodeItem> encode, std::span<const DecodeItem> decode, bool with_logits,
                  DecodeOutput* output) override {
    if (before_live_tick) before_live_tick(encode.size());
    std::vector<uint64_t> rows;
    for (const EncodeItem& item : encode) rows.push_back(EncodeTick(item, 0));
    Run(decode, rows, with_logits, output);
    return Outcome();
  }
  Status Reserve(int slot, int64_t, int64_t) override {
    if (slot == refused_slot) return {StatusCode::kResourceExhausted, "no room"};
    return {};
  }
  void Clear(int slot) override { slots_[slot] = {}; }
  void Release(int slot) override { slots_.erase(slot); }
  Status Clone(int from, int to, int64_t ticks) override {
    slots_[to] = slots_[from];
    slots_[to].outputs.resize(static_cast<size_t>(ticks));
    ++clones;
    return {};
  }
  int64_t BytesNow(int slot) const override { return slots_.count(slot) != 0 ? 100 : 0; }
  Status Health() const override { return {}; }

  std::function<void(size_t sessions)> before_live_tick;  // on the scheduler thread; may block it
  std::atomic<int> clones{0};
  std::atomic<int> refused_slot{-1};
  std::atomic<bool> device_lost{false};

 private:
  struct Slot {
    uint64_t encoder = 1;
    int64_t ticks = 0;
    std::vector<uint64_t> outputs;  // hash after each decoder position
  };

  Status Outcome() const { return device_lost ? Status(StatusCode::kDeviceLost, "gone") : Status(); }

  uint64_t EncodeTick(const EncodeItem& item, int64_t tick) {
    Slot& slot = slots_[item.slot];
    if (slot.ticks != item.first_tick + tick) slot.encoder = MixHash(slot.encoder, 0xBAD);  // out of order
    ++slot.ticks;
    const auto count = static_cast<size_t>(shape_.mel_per_tick) * static_cast<size_t>(shape_.mel_bins);
    for (size_t i = 0; i < count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, item.mel + static_cast<size_t>(tick) * count + i, sizeof(bits));
      slot.encoder = MixHash(slot.encoder, bits);
    }
    return slot.encoder;
  }

  void Run(std::span<const DecodeItem> items, const std::vector<uint64_t>& audio, bool with_logits,
           DecodeOutput* output) {
    output->tokens.clear();
    output->logits.clear();
    for (const DecodeItem& item : items) {
      Slot& slot = slots_[item.slot];
      slot.outputs.resize(static_cast<size_t>(item.first_index));  // rejected rows are overwritten
      for (size_t row = 0; row < item.tokens.size(); ++row) {
        const uint64_t before = slot.outputs.empty() ? 7 : slot.outputs.back();
        const uint64_t input =
            MixHash(static_cast<uint64_t>(item.tokens[row]), static_cast<uint64_t>(item.delay_tokens));
        slot.outputs.push_back(MixHash(MixHash(before, input), audio.at(static_cast<size_t>(item.audio_row) + row)));
        if (static_cast<int64_t>(row) < item.head_begin) continue;
        const int32_t token = TokenOf(slot.outputs.back());
        output->tokens.push_back(token);
        if (!with_logits) continue;
        for (int64_t id = 0; id < shape_.vocab_size; ++id) output->logits.push_back(id == token ? 10.0f : 0.0f);
      }
    }
  }

  StepShape shape_;
  std::map<int, Slot> slots_;
  std::vector<uint64_t> bulk_;
};

}  // namespace voxrt::engine
