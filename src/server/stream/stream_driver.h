// StreamDriver: between a realtime protocol and an engine session. Takes the protocol's commands, keeps what the engine
// cannot take yet, decodes, resamples, cuts utterances, and reports text in order. One per connection, used on its
// strand only; never blocks.
//
//   Command -> backlog of bytes and marks -> PcmDecoder -> Resampler -> VoiceGate -> Session -> StreamEvent
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "audio/resample.h"
#include "engine/engine.h"
#include "server/protocol/audio_format.h"
#include "server/protocol/events.h"
#include "server/stream/backlog.h"
#include "server/stream/voice_gate.h"

namespace voxrt::server {

using Clock = std::chrono::steady_clock;

// Counts for metrics; may be null. Called on the strand.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  virtual void OnAudioReceived(double /*seconds*/) {}
  virtual void OnAudioTranscribed(double /*seconds*/) {}
  virtual void OnToken(bool /*has_text*/) {}
  virtual void OnLag(double /*seconds*/) {}
  virtual void OnFirstText(double /*seconds since the utterance's first audio*/) {}
  virtual void OnPrompt(int64_t /*tokens*/) {}
};

struct DriverOptions {
  BacklogLimits limits;
  int64_t max_pending_samples = 16000 * 30;  // more than left pad and delay, which give no events
  int tick_samples = 1280;
};

class StreamDriver {
 public:
  // `wake` is called from the engine's scheduler thread whenever Pump has something to do; it must only post.
  StreamDriver(std::shared_ptr<engine::Engine> engine, DriverOptions options, std::shared_ptr<BacklogBudget> budget,
               std::function<void()> wake, StreamObserver* observer);
  ~StreamDriver();

  // kIo: the audio could not be stored; kInvalidAudio: no such rate in this build.
  Status Execute(Command command, Clock::time_point now);
  // Moves everything on; appends what happened. A Status that is not ok is an engine fault: the session is over.
  Status Pump(Clock::time_point now, std::vector<StreamEvent>* events);

  bool full() { return backlog_.full(); }
  int64_t backlog_bytes() const { return backlog_.bytes(); }
  // Answers are owed: utterances whose end was commanded and not reported as done.
  bool owes() const { return ends_commanded_ > ends_done_; }
  // With voice activity detection: speech runs, or audio waits that may be speech.
  bool hearing() const { return gate_ && (gate_->speaking() || !marks_.empty() || !pieces_.empty()); }
  // How far the text is behind: age of the audio that the next token needs; 0 when that audio has not come yet.
  double LagSeconds(Clock::time_point now) const;
  // Audio came no faster than 1.2 times real time so far.
  bool paced(Clock::time_point now) const;
  double audio_seconds() const { return received_seconds_; }
  Clock::time_point last_progress() const { return last_progress_; }

 private:
  struct Mark {  // one entry of the backlog, in order
    enum class Type : uint8_t { kBytes, kEnd, kConfigure } type;
    int64_t bytes = 0;
    Clock::time_point arrival;
    StreamOptions options;
  };
  struct Piece {  // decoded, waiting for the engine
    std::vector<float> samples;
    size_t begin = 0;
    Clock::time_point arrival;
    bool ends = false;    // the utterance ends after the samples
    bool manual = false;  // by command
  };
  enum class State : uint8_t { kFeeding, kFinishing };

  void Received(size_t bytes, Clock::time_point now);
  void Clear();
  Status NextMark(std::vector<StreamEvent>* events);
  Status DecodeBytes(Mark* mark, std::vector<StreamEvent>* events);
  Status Configure(const StreamOptions& options);
  Status EndByCommand(Clock::time_point arrival, std::vector<StreamEvent>* events);
  void Gate(std::vector<float> samples, Clock::time_point arrival, std::vector<StreamEvent>* events);
  void ApplyGateActions(std::vector<VoiceGate::Action> actions, Clock::time_point arrival,
                        std::vector<StreamEvent>* events);
  Result<bool> FeedPiece(std::vector<StreamEvent>* events);
  Status EnsureSession();
  Status PollSession(Clock::time_point now, std::vector<StreamEvent>* events);
  void OnEngineEvent(const engine::Event& event, Clock::time_point now, std::vector<StreamEvent>* events);
  void FinishUtterance(int64_t samples, std::vector<StreamEvent>* events);
  void ReportBoundary(std::vector<StreamEvent>* events);
  std::optional<Clock::time_point> ArrivalOfToken(int64_t index) const;
  int64_t NeededSamples(int64_t index) const;

  const std::shared_ptr<engine::Engine> engine_;
  const DriverOptions options_;
  const std::function<void()> wake_;
  StreamObserver* const observer_;

  StreamOptions pushed_options_;  // of what is received now
  Backlog backlog_;
  std::deque<Mark> marks_;

  StreamOptions stream_options_;  // of what is decoded now
  PcmDecoder decoder_;
  std::optional<audio::Resampler> resampler_;
  std::optional<VoiceGate> gate_;
  std::deque<Piece> pieces_;

  std::unique_ptr<engine::Session> session_;
  int session_delay_ms_ = 0;
  bool session_used_ = false;  // needs Reset before the next utterance
  State state_ = State::kFeeding;
  int64_t utterance_ = 0;  // being fed or finished
  int64_t cut_ = 0;        // being cut out of the samples (ahead of utterance_ by queued pieces)
  int64_t starts_ = 0;
  int64_t ends_commanded_ = 0, ends_done_ = 0;
  bool manual_end_ = false;         // the utterance being finished was ended by command
  int64_t fed_samples_ = 0;         // of the utterance
  int64_t utterance_begin_ms_ = 0;  // in the session's audio
  int64_t tokens_ = 0;              // of the utterance
  bool has_text_ = false;
  std::deque<std::pair<int64_t, Clock::time_point>> arrivals_;  // fed samples up to here came at this time
  Clock::time_point end_arrival_;
  Clock::time_point utterance_begin_;
  double received_seconds_ = 0.0;
  std::optional<Clock::time_point> first_audio_;
  Clock::time_point last_progress_;
  std::vector<engine::Event> engine_events_;
};

}  // namespace voxrt::server
