#include "server/stream/stream_driver.h"

#include <algorithm>

namespace voxrt::server {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr int kEngineRate = 16000;
constexpr int64_t kLookAheadSamples = 40;  // of the mel window
constexpr auto kJoinArrivals = std::chrono::milliseconds(20);
constexpr double kPacedFactor = 1.2, kPacedSlackSeconds = 2.0;

}  // namespace

StreamDriver::StreamDriver(std::shared_ptr<engine::Engine> engine, DriverOptions options,
                           std::shared_ptr<BacklogBudget> budget, std::function<void()> wake, StreamObserver* observer)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      wake_(std::move(wake)),
      observer_(observer),
      backlog_(options_.limits, std::move(budget)) {}

StreamDriver::~StreamDriver() {
  if (session_ != nullptr) session_->SetListener(nullptr);
}

Status StreamDriver::Execute(Command command, Clock::time_point now) {
  switch (command.type) {
    case Command::Type::kConfigure:
      pushed_options_ = command.options;
      marks_.push_back({Mark::Type::kConfigure, 0, now, command.options});
      return {};
    case Command::Type::kStart:
      ++starts_;
      return {};
    case Command::Type::kAudio:
      VOXRT_RETURN_IF_ERROR(backlog_.Append(command.bytes));
      Received(command.bytes.size(), now);
      return {};
    case Command::Type::kEndUtterance:
      ++ends_commanded_;
      marks_.push_back({Mark::Type::kEnd, 0, now, {}});
      return {};
    case Command::Type::kClear:
      Clear();
      return {};
  }
  return {};
}

void StreamDriver::Received(size_t bytes, Clock::time_point now) {
  const auto count = static_cast<int64_t>(bytes);
  // Chunks of the same moment are one entry, so that tiny chunks do not cost an entry each.
  if (!marks_.empty() && marks_.back().type == Mark::Type::kBytes && now - marks_.back().arrival < kJoinArrivals) {
    marks_.back().bytes += count;
  } else {
    marks_.push_back({Mark::Type::kBytes, count, now, {}});
  }
  const AudioFormat& format = pushed_options_.format;
  const double seconds =
      static_cast<double>(bytes) / static_cast<double>(BytesPerSample(format.encoding)) / format.rate;
  received_seconds_ += seconds;
  if (!first_audio_) first_audio_ = now;
  if (observer_ != nullptr) observer_->OnAudioReceived(seconds);
}

void StreamDriver::Clear() {
  // The open utterance is everything after the last end, wherever it is on its way. Settings are no audio: they stay.
  std::deque<Mark> settings;
  while (!marks_.empty() && marks_.back().type != Mark::Type::kEnd) {
    if (marks_.back().type == Mark::Type::kBytes) {
      backlog_.DropTail(marks_.back().bytes);
    } else {
      settings.push_front(marks_.back());
    }
    marks_.pop_back();
  }
  const bool end_waits = !marks_.empty();
  marks_.insert(marks_.end(), settings.begin(), settings.end());
  if (end_waits) return;
  decoder_.Reset(stream_options_.format.encoding);
  if (resampler_) {
    std::vector<float> dropped;
    (void)resampler_->Finish(&dropped).ok();
  }
  if (gate_) gate_.emplace(stream_options_.vad);
  while (!pieces_.empty() && !pieces_.back().ends) pieces_.pop_back();
  if (!pieces_.empty() || state_ == State::kFinishing) return;
  if (session_ != nullptr && session_used_) session_->Reset();
  session_used_ = false;
  fed_samples_ = tokens_ = 0;
  has_text_ = false;
  arrivals_.clear();
}

Status StreamDriver::Pump(Clock::time_point now, std::vector<StreamEvent>* events) {
  for (;;) {
    if (session_ != nullptr) VOXRT_RETURN_IF_ERROR(PollSession(now, events));
    if (state_ == State::kFinishing) return {};
    if (!pieces_.empty()) {
      const Result<bool> took = FeedPiece(events);
      if (!took.ok()) {  // a poisoned session says why in its events
        if (session_ != nullptr) VOXRT_RETURN_IF_ERROR(PollSession(now, events));
        return took.status();
      }
      if (!*took) return {};
      continue;
    }
    if (marks_.empty()) return {};
    const bool gated = stream_options_.waits_for_start && cut_ >= starts_;
    if (gated && marks_.front().type != Mark::Type::kConfigure) return {};
    VOXRT_RETURN_IF_ERROR(NextMark(events));
  }
}

Status StreamDriver::NextMark(std::vector<StreamEvent>* events) {
  Mark& mark = marks_.front();
  if (mark.type == Mark::Type::kBytes) return DecodeBytes(&mark, events);
  const Mark taken = mark;
  marks_.pop_front();
  return taken.type == Mark::Type::kConfigure ? Configure(taken.options) : EndByCommand(taken.arrival, events);
}

Status StreamDriver::DecodeBytes(Mark* mark, std::vector<StreamEvent>* events) {
  std::string bytes;
  const size_t count = std::min(kReadBytes, static_cast<size_t>(mark->bytes));
  VOXRT_RETURN_IF_ERROR(backlog_.Read(count, &bytes));
  mark->bytes -= static_cast<int64_t>(bytes.size());
  const Clock::time_point arrival = mark->arrival;
  if (mark->bytes == 0) marks_.pop_front();
  std::vector<float> samples;
  decoder_.Push(bytes, &samples);
  if (resampler_) {
    std::vector<float> resampled;
    VOXRT_RETURN_IF_ERROR(resampler_->Push(samples, &resampled));
    samples = std::move(resampled);
  }
  Gate(std::move(samples), arrival, events);
  return {};
}

Status StreamDriver::Configure(const StreamOptions& options) {
  if (options.format != stream_options_.format || (!resampler_ && options.format.rate != kEngineRate)) {
    resampler_.reset();
    if (options.format.rate != kEngineRate) {
      VOXRT_ASSIGN_OR_RETURN(resampler_, audio::Resampler::Create(options.format.rate, kEngineRate, "realtime audio"));
    }
    decoder_.Reset(options.format.encoding);
  }
  if (options.vad.enabled) {
    if (gate_) {
      gate_->Configure(options.vad);
    } else {
      gate_.emplace(options.vad);
    }
  } else {
    gate_.reset();
  }
  stream_options_ = options;
  return {};
}

Status StreamDriver::EndByCommand(Clock::time_point arrival, std::vector<StreamEvent>* events) {
  decoder_.Reset(stream_options_.format.encoding);  // a rest smaller than a sample is dropped
  if (resampler_) {
    std::vector<float> rest;
    VOXRT_RETURN_IF_ERROR(resampler_->Finish(&rest));
    Gate(std::move(rest), arrival, events);
  }
  if (gate_) {
    std::vector<VoiceGate::Action> actions;
    gate_->EndUtterance(&actions);
    ApplyGateActions(std::move(actions), arrival, events);
  }
  pieces_.push_back({{}, 0, arrival, true, true});
  ReportBoundary(events);
  return {};
}

void StreamDriver::ReportBoundary(std::vector<StreamEvent>* events) {
  StreamEvent event;
  event.type = StreamEvent::Type::kBoundary;
  event.utterance = cut_++;
  events->push_back(std::move(event));
}

void StreamDriver::Gate(std::vector<float> samples, Clock::time_point arrival, std::vector<StreamEvent>* events) {
  if (samples.empty()) return;
  if (!gate_) {
    pieces_.push_back({std::move(samples), 0, arrival, false, false});
    return;
  }
  std::vector<VoiceGate::Action> actions;
  gate_->Push(samples, &actions);
  ApplyGateActions(std::move(actions), arrival, events);
}

void StreamDriver::ApplyGateActions(std::vector<VoiceGate::Action> actions, Clock::time_point arrival,
                                    std::vector<StreamEvent>* events) {
  for (VoiceGate::Action& action : actions) {
    if (action.type == VoiceGate::Action::Type::kSamples) {
      pieces_.push_back({std::move(action.samples), 0, arrival, false, false});
      continue;
    }
    const bool started = action.type == VoiceGate::Action::Type::kStarted;
    StreamEvent event;
    event.type = started ? StreamEvent::Type::kSpeechStarted : StreamEvent::Type::kSpeechStopped;
    event.utterance = cut_;
    event.audio_ms = action.audio_ms;
    events->push_back(std::move(event));
    if (started) {
      if (pieces_.empty() && fed_samples_ == 0) utterance_begin_ms_ = action.audio_ms;
      continue;
    }
    pieces_.push_back({{}, 0, arrival, true, false});
    ReportBoundary(events);
  }
}

Status StreamDriver::EnsureSession() {
  if (session_ != nullptr && session_delay_ms_ == stream_options_.delay_ms) {
    if (session_used_ && fed_samples_ == 0) {
      session_->Reset();
      session_used_ = false;
    }
    return {};
  }
  if (session_ != nullptr && fed_samples_ > 0) return {};  // a new delay holds from the next utterance on
  session_.reset();
  engine::SessionOptions options;
  options.delay_ms = stream_options_.delay_ms;
  options.all_tokens = true;
  options.max_pending_samples = options_.max_pending_samples;
  VOXRT_ASSIGN_OR_RETURN(session_, engine_->NewSession(options));
  session_delay_ms_ = stream_options_.delay_ms;
  session_used_ = false;
  session_->SetListener(wake_);
  return {};
}

// True when something moved on; false when the engine has no room.
Result<bool> StreamDriver::FeedPiece(std::vector<StreamEvent>* events) {
  Piece& piece = pieces_.front();
  if (piece.begin < piece.samples.size()) {
    VOXRT_RETURN_IF_ERROR(EnsureSession());
    if (fed_samples_ == 0) utterance_begin_ = piece.arrival;
    VOXRT_ASSIGN_OR_RETURN(const size_t taken,
                           session_->Feed(std::span<const float>(piece.samples).subspan(piece.begin)));
    if (taken == 0) return false;
    session_used_ = true;
    piece.begin += taken;
    fed_samples_ += static_cast<int64_t>(taken);
    if (!arrivals_.empty() && arrivals_.back().second == piece.arrival) {
      arrivals_.back().first = fed_samples_;
    } else {
      arrivals_.emplace_back(fed_samples_, piece.arrival);
    }
    if (piece.begin < piece.samples.size()) return true;
  }
  if (piece.ends) {
    manual_end_ = piece.manual;
    end_arrival_ = piece.arrival;
    pieces_.pop_front();
    if (fed_samples_ == 0) {
      FinishUtterance(0, events);
      return true;
    }
    VOXRT_RETURN_IF_ERROR(session_->Finish());
    state_ = State::kFinishing;
    return true;
  }
  pieces_.pop_front();
  return true;
}

Status StreamDriver::PollSession(Clock::time_point now, std::vector<StreamEvent>* events) {
  while (session_->Poll(&engine_events_)) {
    last_progress_ = now;
    for (const engine::Event& event : engine_events_) {
      if (event.type == engine::EventType::kError) return event.status;
      OnEngineEvent(event, now, events);
    }
  }
  return {};
}

void StreamDriver::OnEngineEvent(const engine::Event& event, Clock::time_point now, std::vector<StreamEvent>* events) {
  if (event.type == engine::EventType::kBlankRut) {
    StreamEvent warning;
    warning.type = StreamEvent::Type::kWarning;
    warning.utterance = utterance_;
    warning.text = "no_text";
    warning.message =
        "Speech-like audio has given no text for " + std::to_string(static_cast<int>(event.seconds)) + " s";
    events->push_back(std::move(warning));
    return;
  }
  if (event.type == engine::EventType::kToken) {
    ++tokens_;
    if (observer_ != nullptr) {
      observer_->OnToken(!event.text.empty());
      if (const std::optional<Clock::time_point> arrival = ArrivalOfToken(event.index)) {
        observer_->OnLag(std::chrono::duration<double>(now - *arrival).count());
      }
      if (!has_text_ && !event.text.empty())
        observer_->OnFirstText(std::chrono::duration<double>(now - utterance_begin_).count());
    }
    has_text_ = has_text_ || !event.text.empty();
    const int64_t needed = NeededSamples(event.index);
    while (arrivals_.size() > 1 && arrivals_.front().first < needed) arrivals_.pop_front();
  }
  if (event.type == engine::EventType::kToken || (event.type == engine::EventType::kFinished && !event.text.empty())) {
    StreamEvent text;
    text.utterance = utterance_;
    text.text = event.text;
    text.word_mark = event.word_mark;
    text.audio_ms = utterance_begin_ms_ + event.end_ms;
    events->push_back(std::move(text));
  }
  if (event.type == engine::EventType::kFinished) FinishUtterance(fed_samples_, events);
}

void StreamDriver::FinishUtterance(int64_t samples, std::vector<StreamEvent>* events) {
  StreamEvent done;
  done.type = StreamEvent::Type::kDone;
  done.utterance = utterance_;
  done.samples = samples;
  utterance_begin_ms_ += samples * 1000 / kEngineRate;
  done.audio_ms = utterance_begin_ms_;
  if (samples > 0) {
    done.prompt_tokens = session_->stats().prompt_tokens;
    done.completion_tokens = tokens_;
    if (observer_ != nullptr) {
      observer_->OnPrompt(done.prompt_tokens);
      observer_->OnAudioTranscribed(static_cast<double>(samples) / kEngineRate);
    }
  }
  events->push_back(std::move(done));
  if (manual_end_) ++ends_done_;
  manual_end_ = false;
  ++utterance_;
  state_ = State::kFeeding;
  fed_samples_ = tokens_ = 0;
  has_text_ = false;
  arrivals_.clear();
}

int64_t StreamDriver::NeededSamples(int64_t index) const {
  return (index + 1) * options_.tick_samples + static_cast<int64_t>(session_delay_ms_) * kEngineRate / 1000 +
         kLookAheadSamples;
}

std::optional<Clock::time_point> StreamDriver::ArrivalOfToken(int64_t index) const {
  const int64_t needed = NeededSamples(index);
  for (const auto& [samples, arrival] : arrivals_) {
    if (samples >= needed) return arrival;
  }
  // Beyond the audio: the padding after its end gave the token.
  return state_ == State::kFinishing ? std::optional(end_arrival_) : std::nullopt;
}

double StreamDriver::LagSeconds(Clock::time_point now) const {
  std::optional<Clock::time_point> arrival;
  if (fed_samples_ > 0) arrival = ArrivalOfToken(tokens_);
  if (!arrival && !pieces_.empty()) arrival = pieces_.front().arrival;
  const bool gated = stream_options_.waits_for_start && cut_ >= starts_;
  if (!arrival && !gated && !marks_.empty()) arrival = marks_.front().arrival;
  return arrival ? std::max(0.0, std::chrono::duration<double>(now - *arrival).count()) : 0.0;
}

bool StreamDriver::paced(Clock::time_point now) const {
  if (!first_audio_) return true;
  const double elapsed = std::chrono::duration<double>(now - *first_audio_).count();
  return received_seconds_ <= kPacedFactor * elapsed + kPacedSlackSeconds;
}

}  // namespace voxrt::server
