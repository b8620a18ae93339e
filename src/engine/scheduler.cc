#include "engine/scheduler.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "engine/sampling.h"

namespace voxrt::engine {
namespace {

constexpr int64_t kBulkTicks = 3;            // waiting ticks from which a session joins a long-queue round
constexpr int64_t kBulkTicksBesideLive = 8;  // encoder call of a round while live sessions exist, or one per session
// More live sessions than this, each behind by less than kCatchUpTicks, catch up by a live tick per turn for each: one
// large batch serves them faster than their share of the short long-queue rounds, where they would stay behind.
constexpr int kFewBehind = 4;
constexpr int64_t kCatchUpTicks = 25;  // 2 s

using Clock = std::chrono::steady_clock;
// Of a value in a histogram with these upper bounds.
template <size_t kCount>
size_t PlaceOf(double value, const std::array<double, kCount>& bounds) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

Scheduler::Scheduler(std::unique_ptr<StepRunner> runner, const SchedulerOptions& options)
    : options_(options), runner_(std::move(runner)) {
  for (int slot = options.max_sessions - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (int i = 0; i < options.prefix_slots; ++i) prefixes_.push_back({.slot = options.max_sessions + i});
  thread_ = std::thread([this] { Loop(); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Status Scheduler::Add(const std::shared_ptr<SessionCore>& core) {
  std::unique_lock lock(mutex_);
  if (!health_.ok()) return health_;
  // A session that was just closed gives its slot back within a step.
  slot_freed_.wait(lock, [&] { return taken_slots_ < options_.max_sessions || closing_ == 0 || !health_.ok(); });
  if (!health_.ok()) return health_;
  if (taken_slots_ >= options_.max_sessions) {
    return {StatusCode::kResourceExhausted, "all " + std::to_string(options_.max_sessions) +
                                                " session slots are taken; close a session or raise max_sessions"};
  }
  ++taken_slots_;
  added_.push_back(core);
  woken_ = true;
  lock.unlock();
  wake_.notify_one();
  return {};
}

void Scheduler::Remove(SessionCore& core) {
  {
    const std::lock_guard lock(mutex_);
    ++closing_;
  }
  core.Close();
}

void Scheduler::Wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

EngineStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}
int Scheduler::sessions() const {
  const std::lock_guard lock(mutex_);
  return taken_slots_;
}
int64_t Scheduler::bytes_now() const {
  const std::lock_guard lock(mutex_);
  return bytes_now_;
}
Status Scheduler::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

void Scheduler::Loop() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (stop_) break;
      woken_ = false;
    }
    CollectSessions();
    bool worked = false;
    if (!lost_) {
      worked = LiveStep();
      worked = BulkStep() || worked;
      const Status health = runner_->Health();
      if (!health.ok()) FailAll(health);
    }
    if (worked) continue;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return woken_ || stop_; });
  }
  for (const Entry& entry : entries_) runner_->Release(entry.slot);
}

void Scheduler::CollectSessions() {
  std::vector<std::shared_ptr<SessionCore>> added;
  {
    const std::lock_guard lock(mutex_);
    added.swap(added_);
  }
  const size_t before = entries_.size();
  std::erase_if(entries_, [&](const Entry& entry) {
    if (!entry.core->closed()) return false;
    runner_->Release(entry.slot);
    free_slots_.push_back(entry.slot);
    return true;
  });
  const size_t removed = before - entries_.size();
  for (std::shared_ptr<SessionCore>& core : added) {
    // A slot is free, or its session is closed and collected in the next turn at the latest: Add counted it.
    if (free_slots_.empty()) {
      const std::lock_guard lock(mutex_);
      added_.push_back(std::move(core));
      woken_ = true;
      continue;
    }
    entries_.push_back({.core = std::move(core), .slot = free_slots_.back()});
    free_slots_.pop_back();
  }
  int64_t bytes = 0;
  for (Entry& entry : entries_) {
    if (entry.core->BeginEpoch()) {
      runner_->Clear(entry.slot);
      entry.bulk_rows_left = 0;
      entry.has_prefix = false;
    }
    if (lost_) entry.core->Fail(health());
    const int64_t slot_bytes = runner_->BytesNow(entry.slot);
    entry.core->set_bytes_now(slot_bytes);
    bytes += slot_bytes;
  }
  {
    const std::lock_guard lock(mutex_);
    taken_slots_ -= static_cast<int>(removed);
    closing_ -= static_cast<int>(removed);
    bytes_now_ = bytes;
  }
  if (removed > 0) slot_freed_.notify_all();
}

bool Scheduler::ReserveFor(Entry& entry, int64_t ticks) {
  const int64_t guesses = options_.guess_rows;
  const Status status =
      runner_->Reserve(entry.slot, entry.core->next_tick() + ticks,
                       std::max(entry.core->next_position() + guesses, entry.core->next_tick() + ticks));
  if (status.ok()) return true;
  entry.core->Fail(status);
  entry.core->NotifyListener();
  return false;
}

// False when the call failed: its sessions, or all of them, have ended.
bool Scheduler::Usable(const Status& status, const std::vector<Entry*>& involved) {
  if (status.ok()) return true;
  if (status.code() == StatusCode::kDeviceLost || status.code() == StatusCode::kModelFileChanged) {
    FailAll(status);
    return false;
  }
  for (Entry* entry : involved) {
    entry->core->Fail(status);
    entry->core->NotifyListener();
    entry->bulk_rows_left = 0;
  }
  return false;
}

void Scheduler::FailAll(const Status& status) {
  lost_ = true;
  {
    const std::lock_guard lock(mutex_);
    health_ = status;
  }
  for (Entry& entry : entries_) {
    entry.core->Fail(status);
    entry.core->NotifyListener();
    entry.bulk_rows_left = 0;
  }
  slot_freed_.notify_all();
}

// True when so many are behind that they catch up by live ticks.
bool Scheduler::LookAtQueues() {
  ready_.resize(entries_.size());
  int behind = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    ready_[i] = entries_[i].core->ReadyTicks();
    behind += IsBehind(i) ? 1 : 0;
  }
  return behind > kFewBehind;
}

// A live session that waits for a few ticks. At its start it is not behind: its left pad is cloned by the long-queue
// round.
bool Scheduler::IsBehind(size_t i) const {
  const Entry& entry = entries_[i];
  return ready_[i] >= kBulkTicks && ready_[i] < kCatchUpTicks && entry.bulk_rows_left == 0 &&
         entry.core->next_tick() > 0 && entry.core->options().live;
}

bool Scheduler::LiveStep() {
  picked_.clear();
  encode_items_.clear();
  decode_items_.clear();
  mel_rows_.clear();
  bool with_logits = false;
  const bool catch_up = LookAtQueues();
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const bool live = ready_[i] > 0 && (ready_[i] < kBulkTicks || (catch_up && IsBehind(i)));
    if (entry.bulk_rows_left > 0 || !live || !ReserveFor(entry, 1)) continue;
    picked_.push_back(&entry);
    if (static_cast<int64_t>(picked_.size()) == options_.max_sessions) break;
  }
  if (picked_.empty()) return false;
  const auto begin = Clock::now();
  input_tokens_.resize(std::max(input_tokens_.size(), picked_.size()));
  for (size_t i = 0; i < picked_.size(); ++i) {
    SessionCore& core = *picked_[i]->core;
    std::vector<int32_t>& tokens = input_tokens_[i];
    tokens.clear();
    const int64_t head_begin = core.InputTokens(1, &tokens);
    encode_items_.push_back({.slot = picked_[i]->slot,
                             .first_tick = core.next_tick(),
                             .ticks = 1,
                             .position_offset = core.options().start_position});
    decode_items_.push_back({.slot = picked_[i]->slot,
                             .first_index = core.next_position(),
                             .position_offset = core.options().start_position,
                             .delay_tokens = core.delay_tokens(),
                             .tokens = tokens,
                             .audio_row = static_cast<int64_t>(i),
                             .head_begin = head_begin});
    with_logits = with_logits || core.options().temperature > 0.0f;
    core.TakeMel(1, &mel_rows_);
  }
  const size_t tick_floats =
      static_cast<size_t>(options_.shape.mel_per_tick) * static_cast<size_t>(options_.shape.mel_bins);
  for (size_t i = 0; i < picked_.size(); ++i) encode_items_[i].mel = mel_rows_.data() + i * tick_floats;
  const Status status = runner_->LiveTick(encode_items_, decode_items_, with_logits, &output_);
  if (Usable(status, picked_)) CommitOutputs(picked_, decode_items_, with_logits);
  const double seconds = SecondsSince(begin);
  const std::lock_guard lock(mutex_);
  stats_.live_ticks += static_cast<int64_t>(picked_.size());
  ++stats_.live_batches;
  stats_.live_seconds += seconds;
  ++stats_.steps_by_seconds[PlaceOf(seconds, kStepSecondsBounds)];
  ++stats_.steps_by_batch[PlaceOf(static_cast<double>(picked_.size()), kBatchBounds)];
  return true;
}

int64_t Scheduler::CommitOutputs(const std::vector<Entry*>& entries, const std::vector<DecodeItem>& items,
                                 bool with_logits) {
  size_t next = 0;
  int64_t accepted_tokens = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    SessionCore& core = *entries[i]->core;
    const auto count = static_cast<int64_t>(items[i].tokens.size());
    const auto wanted = static_cast<size_t>(count - items[i].head_begin);
    const std::span<int32_t> outputs = std::span(output_.tokens).subspan(next, wanted);
    if (with_logits && core.options().temperature > 0.0f && wanted > 0) {
      const auto vocab = static_cast<size_t>(options_.shape.vocab_size);
      outputs[0] = SampleToken(std::span(output_.logits).subspan(next * vocab, vocab), core.options().temperature,
                               UniformForToken(core.options().seed, core.next_token_index()));
    }
    const int64_t accepted = core.Commit(count, items[i].head_begin, outputs);
    next += wanted;
    accepted_tokens += std::max<int64_t>(accepted - items[i].head_begin, 0);
    if (entries[i]->bulk_rows_left > 0) {
      entries[i]->bulk_row += accepted;
      entries[i]->bulk_rows_left -= accepted;
    }
    core.NotifyListener();
  }
  return accepted_tokens;
}

bool Scheduler::BulkStep() {
  const bool running =
      std::any_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.bulk_rows_left > 0; });
  if (!running) return BeginBulkRound();
  DecodeBulkRound();
  return true;
}

bool Scheduler::BeginBulkRound() {
  picked_.clear();
  bool live_beside = false;
  std::vector<int64_t> ready;
  const bool catch_up = LookAtQueues();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const size_t index = (i + rotation_) % entries_.size();
    Entry& entry = entries_[index];
    int64_t ticks = ready_[index];
    const bool waits_for_live_step = catch_up && IsBehind(index);
    if (ticks >= kBulkTicks && !entry.has_prefix && !waits_for_live_step) {
      ClonePrefix(entry);
      ticks = entry.core->ReadyTicks();
    }
    if (ticks < kBulkTicks || waits_for_live_step) {
      live_beside = live_beside || entry.core->options().live;
      continue;
    }
    picked_.push_back(&entry);
    ready.push_back(ticks);
  }
  if (picked_.empty()) return false;
  ++rotation_;
  const int64_t beside_live = std::max(kBulkTicksBesideLive, static_cast<int64_t>(picked_.size()));
  const int64_t most = options_.shape.max_encode_ticks;
  const int64_t budget = live_beside ? std::min(beside_live, most) : most;
  const auto begin = Clock::now();
  encode_items_.clear();
  mel_rows_.clear();
  int64_t total = 0;
  size_t used = 0;
  for (size_t i = 0; i < picked_.size() && total < budget; ++i) {
    const int64_t share = std::max<int64_t>((budget - total) / static_cast<int64_t>(picked_.size() - i), 1);
    const int64_t ticks = std::min(ready[i], share);
    if (!ReserveFor(*picked_[i], ticks)) continue;
    SessionCore& core = *picked_[i]->core;
    encode_items_.push_back({.slot = picked_[i]->slot,
                             .first_tick = core.next_tick(),
                             .ticks = ticks,
                             .position_offset = core.options().start_position});
    core.TakeMel(ticks, &mel_rows_);
    picked_[i]->bulk_row = total;
    picked_[i]->bulk_rows_left = ticks;
    picked_[used++] = picked_[i];
    total += ticks;
  }
  picked_.resize(used);
  if (used == 0) return false;
  const float* mel = mel_rows_.data();
  for (EncodeItem& item : encode_items_) {
    item.mel = mel;
    mel += item.ticks * options_.shape.mel_per_tick * options_.shape.mel_bins;
  }
  Usable(runner_->Encode(encode_items_), picked_);
  const std::lock_guard lock(mutex_);
  stats_.bulk_ticks += total;
  stats_.encode_seconds += SecondsSince(begin);
  return true;
}

void Scheduler::DecodeBulkRound() {
  const auto begin = Clock::now();
  picked_.clear();
  decode_items_.clear();
  bool with_logits = false;
  int64_t total = 0;
  input_tokens_.resize(std::max(input_tokens_.size(), entries_.size()));
  for (Entry& entry : entries_) {
    if (entry.bulk_rows_left <= 0) continue;
    SessionCore& core = *entry.core;
    const int64_t rows =
        std::min(core.RowsForCall(entry.bulk_rows_left, options_.guess_rows), options_.shape.max_decode_rows - total);
    if (rows <= 0) break;
    std::vector<int32_t>& tokens = input_tokens_[picked_.size()];
    tokens.clear();
    const int64_t head_begin = core.InputTokens(rows, &tokens);
    decode_items_.push_back({.slot = entry.slot,
                             .first_index = core.next_position(),
                             .position_offset = core.options().start_position,
                             .delay_tokens = core.delay_tokens(),
                             .tokens = tokens,
                             .audio_row = entry.bulk_row,
                             .head_begin = head_begin});
    with_logits = with_logits || core.options().temperature > 0.0f;
    picked_.push_back(&entry);
    total += rows;
  }
  int64_t accepted = 0;
  if (Usable(runner_->Decode(decode_items_, with_logits, &output_), picked_)) {
    accepted = CommitOutputs(picked_, decode_items_, with_logits);
  }
  const std::lock_guard lock(mutex_);
  ++stats_.decode_passes;
  stats_.decode_rows += total;
  stats_.decode_tokens += accepted;
  stats_.decode_seconds += SecondsSince(begin);
}

void Scheduler::ClonePrefix(Entry& entry) {
  entry.has_prefix = true;
  SessionCore& core = *entry.core;
  const int64_t ticks = core.left_pad_tokens() - 1;  // the last of them already sees real audio
  if (prefixes_.empty() || core.next_tick() != 0 || core.options().start_position != 0 || core.ReadyTicks() < ticks ||
      ticks < 2 || ticks > options_.shape.max_encode_ticks || ticks > options_.shape.max_decode_rows) {
    return;
  }
  const Result<int> prefix = PrefixSlot(core.delay_tokens());
  // Without the shortcut the session computes its left pad itself.
  if (!prefix.ok() || !runner_->Clone(*prefix, entry.slot, ticks).ok()) return;
  core.SkipTicks(ticks);
}

Result<int> Scheduler::PrefixSlot(int delay_tokens) {
  Prefix* oldest = &prefixes_.front();
  for (Prefix& prefix : prefixes_) {
    if (prefix.delay_tokens == delay_tokens) {
      prefix.used = ++prefix_clock_;
      return prefix.slot;
    }
    if (prefix.used < oldest->used) oldest = &prefix;
  }
  oldest->delay_tokens = 0;
  VOXRT_RETURN_IF_ERROR(ComputePrefix(oldest->slot, delay_tokens));
  oldest->delay_tokens = delay_tokens;
  oldest->used = ++prefix_clock_;
  return oldest->slot;
}

Status Scheduler::ComputePrefix(int slot, int delay_tokens) {
  // Any core of this delay knows the prompt; a prefix needs only ids, so it is asked through a picked session's tokens.
  SessionCore* core = nullptr;
  for (Entry& entry : entries_) {
    if (entry.core->delay_tokens() == delay_tokens && entry.core->next_position() == 0) core = entry.core.get();
  }
  VOXRT_CHECK(core != nullptr);
  const int64_t ticks = core->left_pad_tokens() - 1;
  runner_->Clear(slot);
  VOXRT_RETURN_IF_ERROR(runner_->Reserve(slot, ticks, ticks));
  const float silence = core->silence();
  const std::vector<float> mel(static_cast<size_t>(ticks * options_.shape.mel_per_tick * options_.shape.mel_bins),
                               silence);
  std::vector<int32_t> tokens;
  core->InputTokens(ticks, &tokens);
  const EncodeItem encode{.slot = slot, .first_tick = 0, .ticks = ticks, .mel = mel.data()};
  VOXRT_RETURN_IF_ERROR(runner_->Encode({&encode, 1}));
  const DecodeItem decode{.slot = slot,
                          .first_index = 0,
                          .delay_tokens = delay_tokens,
                          .tokens = tokens,
                          .audio_row = 0,
                          .head_begin = ticks};
  return runner_->Decode({&decode, 1}, false, &output_);
}

}  // namespace voxrt::engine
