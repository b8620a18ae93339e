#include "engine/session_core.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace voxrt::engine {
namespace {

constexpr size_t kMaxEvents = 8192;                   // not taken by the caller: the session waits
constexpr int64_t kFileTicks = 64;                    // a file's ticks are worth a call from here on
constexpr double kVoicedRms = 0.0031622776601683795;  // -50 dBFS
constexpr int kTickMs = 80;

}  // namespace

SessionCore::SessionCore(const SessionSetup& setup, const SessionOptions& options)
    : setup_(setup), options_(options), mel_(setup.mel) {
  const std::lock_guard lock(mutex_);
  StartLocked();
}

void SessionCore::StartLocked() {
  state_ = State::kOpen;
  mel_.Reset();
  rows_.clear();
  rows_begin_ = 0;
  fed_samples_ = 0;
  pushed_samples_ = 0;
  fed_since_flush_ = false;
  flush_position_ = 0;
  done_position_ = 0;
  flush_targets_.clear();
  finish_target_ = -1;
  timeline_ = Timeline();
  events_.clear();
  voiced_.clear();
  frame_energy_ = 0.0;
  frame_samples_ = 0;
  voiced_blank_frames_ = 0;
  rut_reported_ = false;
  // The left pad precedes time zero: it goes through the mel but not through the clock or the level meter.
  const std::vector<float> zeros(static_cast<size_t>(setup_.samples_per_tick), 0.0f);
  for (int i = 0; i < left_pad_tokens(); ++i) mel_.Push(zeros, &rows_);
}

Status SessionCore::CheckOpenLocked() const {
  switch (state_) {
    case State::kOpen:
      return {};
    case State::kPoisoned:
      return {StatusCode::kCancelled, "the session has failed; Reset it before feeding it again"};
    case State::kFinishing:
    case State::kFinished:
      break;
  }
  return {StatusCode::kInvalidArgument, "the session was finished; Reset it before feeding it again"};
}

Result<size_t> SessionCore::Feed(std::span<const float> samples) {
  size_t taken = 0;
  {
    const std::lock_guard lock(mutex_);
    VOXRT_RETURN_IF_ERROR(CheckOpenLocked());
    const int64_t room = std::max<int64_t>(options_.max_pending_samples - PendingSamplesLocked(), 0);
    taken = std::min(samples.size(), static_cast<size_t>(room));
    if (taken == 0) return taken;
    scratch_.resize(taken);
    for (size_t i = 0; i < taken; ++i) {
      const float sample = samples[i];
      scratch_[i] = std::isfinite(sample) ? std::clamp(sample, -1.0f, 1.0f) : 0.0f;
    }
    PushLocked(scratch_);
    fed_samples_ += static_cast<int64_t>(taken);
    fed_since_flush_ = true;
  }
  setup_.wake();
  return taken;
}

Status SessionCore::FeedAll(std::span<const float> samples) {
  constexpr size_t kPiece = 16000;  // keeps the lock short and the queue moving
  while (!samples.empty()) {
    VOXRT_ASSIGN_OR_RETURN(const size_t taken, Feed(samples.first(std::min(samples.size(), kPiece))));
    samples = samples.subspan(taken);
    if (taken > 0) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return state_ != State::kOpen || PendingSamplesLocked() < options_.max_pending_samples ||
             events_.size() >= kMaxEvents;
    });
    if (events_.size() >= kMaxEvents) {
      return {StatusCode::kResourceExhausted, "events of the session were not taken; call Poll while feeding"};
    }
  }
  return {};
}

void SessionCore::PushLocked(std::span<const float> samples) {
  mel_.Push(samples, &rows_);
  pushed_samples_ += static_cast<int64_t>(samples.size());
  for (size_t at = 0; at < samples.size();) {
    const size_t count = std::min(samples.size() - at, static_cast<size_t>(setup_.samples_per_tick - frame_samples_));
    float energy = 0.0f;
    for (size_t i = at; i < at + count; ++i) energy += samples[i] * samples[i];
    frame_energy_ += static_cast<double>(energy);
    frame_samples_ += static_cast<int>(count);
    at += count;
    if (frame_samples_ < setup_.samples_per_tick) break;
    voiced_.push_back(std::sqrt(frame_energy_ / setup_.samples_per_tick) > kVoicedRms);
    frame_energy_ = 0.0;
    frame_samples_ = 0;
  }
}

void SessionCore::PushZerosLocked(int64_t samples) {
  const std::vector<float> zeros(static_cast<size_t>(std::min<int64_t>(samples, setup_.samples_per_tick)), 0.0f);
  while (samples > 0) {
    const int64_t count = std::min<int64_t>(samples, static_cast<int64_t>(zeros.size()));
    PushLocked(std::span(zeros).first(static_cast<size_t>(count)));
    samples -= count;
  }
}

int64_t SessionCore::PendingSamplesLocked() const {
  const int64_t rows = static_cast<int64_t>(rows_.size() - rows_begin_) / setup_.mel.bins;
  return rows * setup_.mel.hop_samples;
}

Status SessionCore::Flush() {
  {
    const std::lock_guard lock(mutex_);
    VOXRT_RETURN_IF_ERROR(CheckOpenLocked());
    if (fed_since_flush_) {
      const int64_t tick = setup_.samples_per_tick;
      const int64_t zeros = (tick - pushed_samples_ % tick) % tick + right_pad_samples();
      timeline_.Insert(pushed_samples_, zeros);
      PushZerosLocked(zeros);
      fed_since_flush_ = false;
      // The last tick waits for 40 samples of look-ahead that have not been fed (docs/model.md 3).
      flush_position_ = left_pad_tokens() + pushed_samples_ / tick - 1;
    }
    flush_targets_.push_back(flush_position_);
    ResolveMarkersLocked();
  }
  changed_.notify_all();
  setup_.wake();
  NotifyListener();
  return {};
}

Status SessionCore::Finish() {
  {
    const std::lock_guard lock(mutex_);
    VOXRT_RETURN_IF_ERROR(CheckOpenLocked());
    const int64_t tick = setup_.samples_per_tick;
    if (fed_since_flush_ || flush_position_ == 0) {
      PushZerosLocked((tick - pushed_samples_ % tick) % tick + right_pad_samples());
    }
    mel_.Finish(&rows_);
    finish_target_ = left_pad_tokens() + pushed_samples_ / tick;
    state_ = State::kFinishing;
  }
  setup_.wake();
  return {};
}

void SessionCore::Reset() {
  {
    const std::lock_guard lock(mutex_);
    ++epoch_;
    StartLocked();
  }
  changed_.notify_all();
  setup_.wake();
}

void SessionCore::Close() {
  closed_ = true;
  {
    const std::lock_guard lock(mutex_);
    ++epoch_;
    listener_ = nullptr;
  }
  setup_.wake();
}

bool SessionCore::Poll(std::vector<Event>* events) { return Wait(events, std::chrono::milliseconds(0)); }

bool SessionCore::Wait(std::vector<Event>* events, std::chrono::milliseconds timeout) {
  events->clear();
  bool was_full = false;
  {
    std::unique_lock lock(mutex_);
    if (events_.empty() && timeout.count() > 0) changed_.wait_for(lock, timeout, [&] { return !events_.empty(); });
    was_full = events_.size() >= kMaxEvents;
    events->swap(events_);
  }
  if (was_full) setup_.wake();
  return !events->empty();
}

void SessionCore::SetListener(std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

void SessionCore::NotifyListener() {
  std::function<void()> listener;
  {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return;
    listener = listener_;
  }
  if (listener) listener();
}

SessionStats SessionCore::stats() const {
  const std::lock_guard lock(mutex_);
  return {.samples_fed = fed_samples_,
          .pending_samples = PendingSamplesLocked(),
          .tokens = token_count_,
          .prompt_tokens = prompt_length(),
          .bytes_now = bytes_now_};
}

bool SessionCore::BeginEpoch() {
  const std::lock_guard lock(mutex_);
  if (back_epoch_ == epoch_) return false;
  back_epoch_ = epoch_;
  next_tick_ = 0;
  next_position_ = 0;
  token_count_ = 0;
  last_token_ = 0;
  assembler_ = text::Utf8Assembler();
  return true;
}

int64_t SessionCore::ReadyTicks() const {
  const std::lock_guard lock(mutex_);
  if (back_epoch_ != epoch_ || state_ == State::kPoisoned || state_ == State::kFinished || events_.size() >= kMaxEvents)
    return 0;
  const int64_t rows = static_cast<int64_t>(rows_.size() - rows_begin_) / setup_.mel.bins;
  const int64_t ticks = rows / setup_.mel_per_tick;
  const bool must_go = options_.live || state_ == State::kFinishing || !flush_targets_.empty() ||
                       PendingSamplesLocked() * 2 > options_.max_pending_samples;
  return must_go || ticks >= kFileTicks ? ticks : 0;
}

void SessionCore::TakeMel(int64_t ticks, std::vector<float>* rows) {
  {
    const std::lock_guard lock(mutex_);
    const size_t count = static_cast<size_t>(ticks) * static_cast<size_t>(setup_.mel_per_tick * setup_.mel.bins);
    if (back_epoch_ == epoch_) {
      VOXRT_CHECK(rows_begin_ + count <= rows_.size());
      rows->insert(rows->end(), rows_.begin() + static_cast<std::ptrdiff_t>(rows_begin_),
                   rows_.begin() + static_cast<std::ptrdiff_t>(rows_begin_ + count));
      rows_begin_ += count;
      if (rows_begin_ == rows_.size() || rows_begin_ > (1u << 20)) {  // drop what was taken, rarely enough to be cheap
        rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(rows_begin_));
        rows_begin_ = 0;
      }
    } else {
      rows->insert(rows->end(), count, 0.0f);  // reset in between: the result is dropped
    }
  }
  next_tick_ += ticks;
  changed_.notify_all();
}

void SessionCore::SkipTicks(int64_t ticks) {
  std::vector<float> dropped;
  TakeMel(ticks, &dropped);
  const std::lock_guard lock(mutex_);
  next_position_ += ticks;
  if (back_epoch_ == epoch_) done_position_ = next_position_;
}

int64_t SessionCore::RowsForCall(int64_t available, int64_t guesses) const {
  // Rows up to position prompt_length - 1 have known inputs; the first after it needs the first token.
  const int64_t known = std::max<int64_t>(prompt_length() - next_position_, 1);
  const int64_t wanted = options_.temperature > 0.0f ? known : std::max(known, guesses);
  return std::min(available, wanted);
}

int64_t SessionCore::InputTokens(int64_t count, std::vector<int32_t>* tokens) const {
  const int64_t prompt = prompt_length();
  for (int64_t row = 0; row < count; ++row) {
    const int64_t position = next_position_ + row;
    if (position == 0) {
      tokens->push_back(setup_.tekken->bos());
    } else if (row == 0 && position >= prompt) {
      tokens->push_back(last_token_);
    } else {
      tokens->push_back(setup_.tekken->pad());
    }
  }
  return std::clamp<int64_t>(prompt - 1 - next_position_, 0, count);
}

int64_t SessionCore::Commit(int64_t count, int64_t head_begin, std::span<const int32_t> outputs) {
  VOXRT_CHECK(static_cast<int64_t>(outputs.size()) == count - head_begin);
  const std::lock_guard lock(mutex_);
  if (back_epoch_ != epoch_) return count;  // reset in between: nothing of it counts
  int64_t accepted = head_begin;
  for (const int32_t id : outputs) {
    ++accepted;
    EmitTokenLocked(id);
    if (id != setup_.tekken->pad()) break;  // the next row was computed with a guessed pad
  }
  next_position_ += accepted;
  done_position_ = next_position_;
  ResolveMarkersLocked();
  changed_.notify_all();
  return accepted;
}

void SessionCore::EmitTokenLocked(int32_t id) {
  const int64_t index = token_count_++;
  last_token_ = id;
  const int64_t end = std::min(timeline_.ToFed((index + 1) * setup_.samples_per_tick), fed_samples_);
  Event event;
  event.token = id;
  event.index = index;
  event.end_ms = end * kTickMs / setup_.samples_per_tick;
  event.word_mark = setup_.tekken->word() == id;
  const std::string_view bytes = setup_.tekken->Bytes(id);
  if (!bytes.empty()) event.text = assembler_.Push(bytes);
  DetectRutLocked(!bytes.empty());
  if (options_.all_tokens || event.word_mark || !event.text.empty()) AddEventLocked(std::move(event));
}

void SessionCore::DetectRutLocked(bool has_text) {
  bool voiced = false;
  if (!voiced_.empty()) {
    voiced = voiced_.front();
    voiced_.pop_front();
  }
  if (has_text) {
    voiced_blank_frames_ = 0;
    rut_reported_ = false;
    return;
  }
  if (voiced) ++voiced_blank_frames_;
  const double seconds = static_cast<double>(voiced_blank_frames_) * kTickMs / 1000.0;
  if (options_.rut_seconds <= 0.0 || rut_reported_ || seconds < options_.rut_seconds) return;
  rut_reported_ = true;
  Event event;
  event.type = EventType::kBlankRut;
  event.seconds = seconds;
  event.index = token_count_ - 1;
  AddEventLocked(std::move(event));
}

void SessionCore::ResolveMarkersLocked() {
  while (!flush_targets_.empty() && done_position_ >= flush_targets_.front()) {
    flush_targets_.pop_front();
    Event event;
    event.type = EventType::kFlushed;
    event.index = token_count_;
    event.end_ms = fed_samples_ * kTickMs / setup_.samples_per_tick;
    AddEventLocked(std::move(event));
  }
  if (finish_target_ < 0 || done_position_ < finish_target_) return;
  finish_target_ = -1;
  state_ = State::kFinished;
  Event event;
  event.type = EventType::kFinished;
  event.index = token_count_;
  event.end_ms = fed_samples_ * kTickMs / setup_.samples_per_tick;
  event.text = assembler_.Finish();  // an incomplete character becomes U+FFFD
  AddEventLocked(std::move(event));
}

void SessionCore::AddEventLocked(Event event) { events_.push_back(std::move(event)); }

void SessionCore::Fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (back_epoch_ != epoch_ || state_ == State::kPoisoned || state_ == State::kFinished) return;
    state_ = State::kPoisoned;
    Event event;
    event.type = EventType::kError;
    event.status = status;
    AddEventLocked(std::move(event));
  }
  changed_.notify_all();
}

}  // namespace voxrt::engine
