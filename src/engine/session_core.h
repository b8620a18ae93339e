// SessionCore: the state machine of one stream. Its front half is fed by callers (audio -> mel rows, events out), its
// back half is driven by the scheduler thread (ticks in, tokens out). The two meet under one mutex; a Reset in between
// is an epoch change.
//
//   callers:   Feed -> mel -> rows_            events_ -> Poll
//                               |                 ^
//   scheduler:            TakeMel -> encode -> decode -> Commit
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "audio/mel.h"
#include "engine/session.h"
#include "engine/timeline.h"
#include "text/tekken.h"
#include "text/utf8_assembler.h"

namespace voxrt::engine {

// What a session takes from its engine.
struct SessionSetup {
  const text::Tekken* tekken = nullptr;
  audio::MelOptions mel;
  int samples_per_tick = 1280;
  int mel_per_tick = 8;
  int delay_tokens = 6;
  std::function<void()> wake;  // there may be work for the scheduler
};

class SessionCore {
 public:
  SessionCore(const SessionSetup& setup, const SessionOptions& options);

  // --- Callers. As in Session.
  Result<size_t> Feed(std::span<const float> samples);
  Status FeedAll(std::span<const float> samples);
  Status Flush();
  Status Finish();
  void Reset();
  bool Poll(std::vector<Event>* events);
  bool Wait(std::vector<Event>* events, std::chrono::milliseconds timeout);
  void SetListener(std::function<void()> listener);
  SessionStats stats() const;
  void Close();  // the session object is gone; the scheduler gives the slot back

  // --- Scheduler thread.
  bool closed() const { return closed_; }
  // True once per Reset (and at the beginning): the slot's state must be cleared; the back half starts over.
  bool BeginEpoch();
  // Whole ticks that wait for the encoder; 0 when the session cannot go on (poisoned, events not taken, too little of a
  // file yet).
  int64_t ReadyTicks() const;
  // Moves the next `ticks` ticks of mel rows to the end of *rows.
  void TakeMel(int64_t ticks, std::vector<float>* rows);
  // Skips ticks whose state was cloned: all-zero audio at the very beginning.
  void SkipTicks(int64_t ticks);
  // Input tokens of the next `count` decoder rows: prompt, the last token, then guessed pads. Fills *tokens; returns
  // the first row whose output is wanted (count = none).
  int64_t InputTokens(int64_t count, std::vector<int32_t>* tokens) const;
  // How many of the next rows may go into one call: the rest of the prompt, and up to `guesses` rows after it.
  int64_t RowsForCall(int64_t available, int64_t guesses) const;
  // Takes the outputs of rows [head_begin, count) of a call with `count` rows; returns how many rows are right (>= 1):
  // up to and including the first output that is no pad.
  int64_t Commit(int64_t count, int64_t head_begin, std::span<const int32_t> outputs);
  void Fail(const Status& status);
  void NotifyListener();

  int64_t next_tick() const { return next_tick_; }          // of the encoder
  int64_t next_position() const { return next_position_; }  // of the decoder
  int64_t next_token_index() const { return token_count_; }
  int delay_tokens() const { return setup_.delay_tokens; }
  int left_pad_tokens() const { return setup_.tekken->left_pad_tokens(); }
  const SessionOptions& options() const { return options_; }
  // Every mel bin of digital silence.
  float silence() const { return (setup_.mel.log_mel_max - 8.0f + 4.0f) / 4.0f; }
  void set_bytes_now(int64_t bytes) { bytes_now_ = bytes; }

 private:
  enum class State : uint8_t { kOpen, kFinishing, kFinished, kPoisoned };

  int64_t prompt_length() const { return 1 + left_pad_tokens() + setup_.delay_tokens; }
  int64_t right_pad_samples() const {
    return static_cast<int64_t>(setup_.samples_per_tick) * (setup_.delay_tokens + 11);
  }
  Status CheckOpenLocked() const;
  void StartLocked();                               // a fresh stream: left pad
  void PushLocked(std::span<const float> samples);  // through mel and level
  void PushZerosLocked(int64_t samples);
  int64_t PendingSamplesLocked() const;
  void ResolveMarkersLocked();
  void EmitTokenLocked(int32_t id);
  void DetectRutLocked(bool has_text);
  void AddEventLocked(Event event);

  const SessionSetup setup_;
  const SessionOptions options_;
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> bytes_now_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // events came, or room was made
  State state_ = State::kOpen;
  uint64_t epoch_ = 1;
  audio::MelStream mel_;
  std::vector<float> rows_;  // mel rows not yet taken, from rows_begin_ on
  size_t rows_begin_ = 0;    // in floats
  int64_t fed_samples_ = 0;
  int64_t pushed_samples_ = 0;  // fed and inserted, left pad excluded
  bool fed_since_flush_ = false;
  int64_t flush_position_ = 0;  // decoder positions that the last Flush waits for
  int64_t done_position_ = 0;   // decoder positions committed in this epoch
  std::deque<int64_t> flush_targets_;
  int64_t finish_target_ = -1;
  Timeline timeline_;
  std::vector<Event> events_;
  std::function<void()> listener_;
  std::vector<float> scratch_;  // sanitised samples
  // Blank-rut detector: one flag per 80 ms frame not yet spoken about.
  std::deque<bool> voiced_;
  double frame_energy_ = 0.0;
  int frame_samples_ = 0;
  int64_t voiced_blank_frames_ = 0;
  bool rut_reported_ = false;

  // Back half: written by the scheduler thread only (those read by callers under the mutex).
  uint64_t back_epoch_ = 0;
  int64_t next_tick_ = 0;
  int64_t next_position_ = 0;
  int64_t token_count_ = 0;
  int32_t last_token_ = 0;
  text::Utf8Assembler assembler_;
};

}  // namespace voxrt::engine
