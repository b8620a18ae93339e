// Scheduler: the one thread per device that turns ready ticks of all sessions into batched calls of a StepRunner.
//
// Every turn: (1) one live tick for each session that has one ready; (2) one step of the long-queue round: sessions
// with several ticks waiting share an encoder call over many frames, then decoder passes follow, each with guessed pads
// (docs/performance.md, blank-run speculation), until its rows are used up. Live ticks come first in every turn, and
// while there are live sessions the encoder calls of long queues stay short. When many live sessions fall behind a
// little, as under load, they stay in (1): its batch grows with the load. The results of a session do not depend on any
// of this (contract of backend/stream.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/session_core.h"
#include "engine/step_runner.h"

namespace voxrt::engine {

struct SchedulerOptions {
  int max_sessions = 1;
  int prefix_slots = 0;    // slots beyond max_sessions that keep the state after the silent left pad, one per delay
  int64_t guess_rows = 4;  // decoder rows per session and pass for long queues
  StepShape shape;
};

class Scheduler {
 public:
  Scheduler(std::unique_ptr<StepRunner> runner, const SchedulerOptions& options);
  ~Scheduler();

  // Registers a session; kResourceExhausted when all slots are taken, or the reason why nothing works any more.
  Status Add(const std::shared_ptr<SessionCore>& core);
  // The session object is gone: its slot comes back with the next turn.
  void Remove(SessionCore& core);
  // There may be work. Called from any thread.
  void Wake();

  EngineStats stats() const;
  int sessions() const;
  int64_t bytes_now() const;
  Status health() const;

 private:
  struct Entry {
    std::shared_ptr<SessionCore> core;
    int slot = -1;
    bool has_prefix = false;  // nothing to clone any more
    int64_t bulk_row = 0;     // next row of this session in the long-queue buffer
    int64_t bulk_rows_left = 0;
  };
  struct Prefix {
    int delay_tokens = 0;  // 0 = free
    int slot = 0;
    uint64_t used = 0;  // for least recently used
  };

  void Loop();
  void CollectSessions();  // new, closed and reset sessions
  bool LookAtQueues();
  bool IsBehind(size_t i) const;
  bool LiveStep();
  bool BulkStep();
  bool BeginBulkRound();
  void DecodeBulkRound();
  void ClonePrefix(Entry& entry);
  Result<int> PrefixSlot(int delay_tokens);
  Status ComputePrefix(int slot, int delay_tokens);
  // Room for the next ticks of a session; a session that gets none fails alone.
  bool ReserveFor(Entry& entry, int64_t ticks);
  bool Usable(const Status& status, const std::vector<Entry*>& involved);
  // Returns the number of tokens that were accepted.
  int64_t CommitOutputs(const std::vector<Entry*>& entries, const std::vector<DecodeItem>& items, bool with_logits);
  void FailAll(const Status& status);

  const SchedulerOptions options_;
  std::unique_ptr<StepRunner> runner_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable slot_freed_;
  bool woken_ = false;
  bool stop_ = false;
  std::vector<std::shared_ptr<SessionCore>> added_;
  int taken_slots_ = 0;
  int closing_ = 0;
  Status health_;
  EngineStats stats_;
  int64_t bytes_now_ = 0;

  // Scheduler thread only.
  std::vector<Entry> entries_;
  std::vector<int> free_slots_;
  std::vector<Prefix> prefixes_;
  uint64_t prefix_clock_ = 0;
  size_t rotation_ = 0;  // where the next long-queue round begins, so that nobody starves
  bool lost_ = false;
  std::vector<int64_t> ready_;  // ticks of each entry, as LookAtQueues found them
  std::vector<Entry*> picked_;
  std::vector<EncodeItem> encode_items_;
  std::vector<DecodeItem> decode_items_;
  std::vector<std::vector<int32_t>> input_tokens_;
  std::vector<float> mel_rows_;
  DecodeOutput output_;

  std::thread thread_;
};

}  // namespace voxrt::engine
