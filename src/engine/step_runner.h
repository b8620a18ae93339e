// StepRunner: what the scheduler needs from a model on a device: encoder calls, decoder calls, slots. The real one is
// ModelRunner; tests use a fake, so that scheduling is tested without a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace voxrt::engine {

// Consecutive ticks of one session for the encoder.
struct EncodeItem {
  int slot = 0;
  int64_t first_tick = 0;  // index of the first tick since the session's reset
  int64_t ticks = 1;
  int64_t position_offset = 0;  // added to tick indices (x 4 for encoder rows) before rotary phases
  const float* mel = nullptr;   // [8 ticks, bins]
};

// Consecutive decoder rows of one session.
struct DecodeItem {
  int slot = 0;
  int64_t first_index = 0;  // position of the first row since the session's reset
  int64_t position_offset = 0;
  int delay_tokens = 6;
  std::span<const int32_t> tokens;  // one input token per row
  int64_t audio_row = 0;   // row of the first: in the long-queue buffer, or (live) the number of its EncodeItem
  int64_t head_begin = 0;  // rows >= head_begin want a token; tokens.size() = none
};

struct DecodeOutput {
  std::vector<int32_t> tokens;  // arg-max of every wanted row, items one after another
  std::vector<float> logits;    // [wanted rows, vocab] where asked for
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Encoder of long queues: adapter rows of the items land one after another in the long-queue buffer, from row 0.
  virtual Status Encode(std::span<const EncodeItem> items) = 0;
  // Decoder over rows of the long-queue buffer.
  virtual Status Decode(std::span<const DecodeItem> items, bool with_logits, DecodeOutput* output) = 0;
  // One tick of every item: encode[i].ticks == 1 and decode[i] has one row of the same slot.
  virtual Status LiveTick(std::span<const EncodeItem> encode, std::span<const DecodeItem> decode, bool with_logits,
                          DecodeOutput* output) = 0;

  // Makes room for a slot's state up to these ends (exclusive). kResourceExhausted concerns this slot alone. Called
  // before the calls above.
  virtual Status Reserve(int slot, int64_t ticks_end, int64_t positions_end) = 0;
  // Slot `slot` back to the beginning; Release also gives its memory back.
  virtual void Clear(int slot) = 0;
  virtual void Release(int slot) = 0;
  // Makes `to` a copy of `from`, whose next tick and position is `ticks`.
  virtual Status Clone(int from, int to, int64_t ticks) = 0;
  virtual int64_t BytesNow(int slot) const = 0;
  // kModelFileChanged once the weights under the model are gone.
  virtual Status Health() const = 0;
};

// Shapes of the model that scheduling depends on.
struct StepShape {
  int mel_bins = 128;
  int mel_per_tick = 8;
  int64_t vocab_size = 0;
  int64_t max_encode_ticks = 128;  // of one Encode call, all items together
  int64_t max_decode_rows = 128;   // of one Decode call
  int64_t max_item_rows = 4;       // of one DecodeItem
};

}  // namespace voxrt::engine
