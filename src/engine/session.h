// Session: one audio stream and its tokens. Cheap to make; many per engine; each may be used from one thread at a time,
// different sessions from different threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace voxrt::engine {

struct SessionOptions {
  int delay_ms = 0;          // 0 = the model's default; else a multiple of 80 from 80 to 2400
  float temperature = 0.0f;  // 0 = greedy
  uint64_t seed = 0;         // of sampling: Philox keyed by seed and token index
  int64_t start_position =
      0;                    // added to every position before rotary phases are computed (docs/model.md 8.2); for tests
  bool all_tokens = false;  // Poll also hands out pads and other tokens without text
  bool live = true;         // false: work may be batched over long stretches before the first text appears
  double rut_seconds = 30.0;  // blank-rut detector: an event after this much voiced audio with pads only; 0 = off
  int64_t max_pending_samples = 16000LL * 60 * 2;  // Feed takes no more than this ahead of the engine
};

enum class EventType : uint8_t {
  kToken,     // one generated token
  kFlushed,   // everything fed before a Flush has been turned into tokens
  kFinished,  // the stream ended; nothing follows until Reset
  kBlankRut,  // `seconds` of voiced audio gave no text
  kError,     // the session is poisoned until Reset; see `status`
};

struct Event {
  EventType type = EventType::kToken;
  int32_t token = -1;
  int64_t index = 0;   // k: 0 for the first generated token of the stream
  int64_t end_ms = 0;  // end of the token's 80 ms frame in the fed audio: pad, delay and flush insertions subtracted,
                       // never beyond the audio fed (docs/model.md 3)
  bool word_mark = false;  // token is [STREAMING_WORD]
  std::string text;        // complete UTF-8, may be empty; concatenation of all is the transcript (leading space kept)
  double seconds = 0.0;    // kBlankRut
  Status status;           // kError
};

struct SessionStats {
  int64_t samples_fed = 0;
  int64_t pending_samples = 0;  // fed, not yet through the encoder
  int64_t tokens = 0;           // generated
  int64_t prompt_tokens = 0;    // 1 + left pad + delay
  int64_t bytes_now = 0;        // device state
};

class Session {
 public:
  virtual ~Session() = default;

  // Takes samples (16 kHz mono, nominal range +-1; NaN and infinities become 0, values beyond +-1 are clamped) up to
  // the pending limit and returns how many it took; never blocks. An error means the session is poisoned or finished.
  virtual Result<size_t> Feed(std::span<const float> samples) = 0;
  // Feeds all of it, waiting for room where needed.
  virtual Status FeedAll(std::span<const float> samples) = 0;

  // Pushes the delay window and look-ahead out with zeros: everything said so far becomes text, then kFlushed. The
  // session goes on; later times do not count the inserted samples.
  virtual Status Flush() = 0;
  // No more audio: right padding as docs/model.md 3, all ceil(n / 1280) + 11 tokens, then kFinished.
  virtual Status Finish() = 0;
  // Drops everything (queued audio, pending events, state); a new stream begins.
  virtual void Reset() = 0;

  // Moves out all events that are there; false when there are none.
  virtual bool Poll(std::vector<Event>* events) = 0;
  // Same, waiting up to `timeout` for the first.
  virtual bool Wait(std::vector<Event>* events, std::chrono::milliseconds timeout) = 0;
  // Called on the scheduler thread whenever events were added: must return at once and not call into the session.
  virtual void SetListener(std::function<void()> listener) = 0;

  virtual SessionStats stats() const = 0;
};

}  // namespace voxrt::engine
