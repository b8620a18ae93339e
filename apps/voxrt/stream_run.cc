// One input's way through the engine; see the header.
//
// Two threads: a reader blocks in the source and fills a bounded queue; the caller's thread is the only one that
// touches the session: it feeds what has arrived, takes events and writes them. It sleeps until audio, events or the
// end arrive, and looks at the interrupt flag at least ten times a second.
#include "stream_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "interrupt.h"

namespace voxrt::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSampleRate = 16000;
constexpr size_t kReadSamples = 8192;
constexpr size_t kQueueSamples = 4 * 65536;  // 16 s
constexpr std::chrono::milliseconds kLookInterval(100);

// Samples on their way from the reading thread to the feeding one.
class SampleQueue {
 public:
  // Reader: waits for room; false when the run is over.
  bool Push(std::span<const float> samples) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return closed_ || samples_.size() < kQueueSamples; });
    if (closed_) return false;
    samples_.insert(samples_.end(), samples.begin(), samples.end());
    changed_.notify_one();
    return true;
  }
  void End(Status status) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = std::move(status);
    changed_.notify_one();
  }
  // Any thread: something happened that the feeding thread should look at.
  void Notify() {
    const std::lock_guard lock(mutex_);
    notified_ = true;
    changed_.notify_one();
  }
  // Feeder: sleeps until there is something to do, then, where `want_samples`, moves out what has arrived. False at the
  // end.
  bool Wait(bool want_samples, std::vector<float>* samples, Status* end_status) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLookInterval,
                      [&] { return notified_ || (want_samples && (ended_ || !samples_.empty())); });
    notified_ = false;
    if (!want_samples) return true;
    samples->clear();
    std::swap(*samples, samples_);
    room_.notify_one();
    if (!samples->empty() || !ended_) return true;
    *end_status = status_;
    return false;
  }
  // Feeder: no more samples are wanted.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_, room_;
  std::vector<float> samples_;
  Status status_;
  bool ended_ = false, closed_ = false, notified_ = false;
};

void ReadAll(audio::AudioSource& source, const std::atomic<bool>* stop, SampleQueue& queue) {
  std::vector<float> buffer(kReadSamples);
  while (stop == nullptr || !stop->load(std::memory_order_relaxed)) {
    Result<size_t> read = source.Read(buffer);
    if (!read.ok()) return queue.End(read.status());
    if (*read == 0) return queue.End({});
    if (!queue.Push(std::span(buffer).first(*read))) return;
  }
  queue.End({});
}

class StreamRun {
 public:
  StreamRun(engine::Engine& engine, const std::vector<Sink*>& sinks, Screen& screen, const StreamRunOptions& options)
      : engine_(engine), sinks_(sinks), screen_(screen), options_(options) {}

  StreamRunResult Run(audio::AudioSource& source) {
    engine::SessionOptions session_options = options_.session;
    session_options.all_tokens = true;  // pads tell the position, and --tokens prints them
    Result<std::unique_ptr<engine::Session>> session = engine_.NewSession(session_options);
    if (!session.ok()) return Failed(session.status(), ExitCodeFor(session.status()));
    session_ = *std::move(session);
    session_->SetListener([this] { queue_.Notify(); });
    duration_s_ = source.info().duration_s;
    std::thread reader([&] { ReadAll(source, options_.stop, queue_); });
    Loop();
    if (options_.stop != nullptr) *options_.stop = true;
    queue_.Close();
    reader.join();
    session_->SetListener({});
    screen_.ClearStatus();
    return Conclude();
  }

 private:
  void Loop() {
    while (!finished_ && result_.status.ok()) {
      const bool want_samples = !finishing_ && fed_ == block_.size();
      Status end_status;
      const bool more = queue_.Wait(want_samples, &block_, &end_status);
      if (want_samples) TakeBlock();
      if (Interrupted() && !result_.summary.interrupted) HandleInterrupt();
      if (!more && !finishing_) {
        // What came before a fault of the source is still turned into text.
        if (!end_status.ok() && end_status.code() != StatusCode::kCancelled) source_status_ = end_status;
        Finish();
      }
      if (!finishing_) Feed();
      HandleEvents();
      TellDropped();
      ShowStatus();
    }
  }

  // A live source is stopped and what it has delivered still counts; of a file, what has been fed.
  void HandleInterrupt() {
    result_.summary.interrupted = true;
    if (options_.session.live && options_.stop != nullptr) {
      *options_.stop = true;
    } else if (!finishing_) {
      Finish();
    }
  }

  void TellDropped() {
    if (options_.dropped_samples == nullptr) return;
    const uint64_t dropped = options_.dropped_samples->load(std::memory_order_relaxed);
    if (dropped == told_dropped_) return;
    const double seconds = static_cast<double>(dropped - told_dropped_) / options_.dropped_rate;
    told_dropped_ = dropped;
    screen_.Warning(
        fmt::format("{}: {:.2f} s of audio were lost: the machine is too slow for this model", options_.name, seconds));
    Write([&](Sink& sink) { return sink.Notice("input_overflow", seconds); });
  }

  void TakeBlock() {
    fed_ = 0;
    if (options_.on_samples && !block_.empty()) options_.on_samples(block_);
  }

  void Feed() {
    if (fed_ == block_.size()) return;
    Result<size_t> taken = session_->Feed(std::span(block_).subspan(fed_));
    if (!taken.ok()) return Fail(taken.status());
    fed_ += *taken;
    samples_ += static_cast<int64_t>(*taken);
  }

  void Finish() {
    finishing_ = true;
    if (Status status = session_->Finish(); !status.ok()) Fail(status);
  }

  void HandleEvents() {
    events_.clear();
    if (!session_->Poll(&events_)) return;
    for (const engine::Event& event : events_) {
      switch (event.type) {
        case engine::EventType::kToken:
          HandleToken(event);
          break;
        case engine::EventType::kFlushed:
          break;
        case engine::EventType::kFinished:
          finished_ = true;
          break;
        case engine::EventType::kBlankRut:
          screen_.Warning(fmt::format("{}: {:.0f} s of voiced audio gave no text", options_.name, event.seconds));
          Write([&](Sink& sink) { return sink.Notice("blank_rut", event.seconds); });
          break;
        case engine::EventType::kError:
          Fail(event.status);
          break;
      }
      if (!result_.status.ok()) return;
    }
  }

  void HandleToken(const engine::Event& event) {
    position_ms_ = event.end_ms;
    Write([&](Sink& sink) { return sink.Token(event); });
    builder_.Add(event.text, event.word_mark, event.end_ms);
    GiveSegments();
  }

  void GiveSegments() {
    const std::vector<text::Segment> segments = builder_.TakeSegments();
    if (!segments.empty()) Write([&](Sink& sink) { return sink.Segments(segments); });
  }

  void Write(const std::function<Status(Sink&)>& write) {
    for (Sink* sink : sinks_) {
      if (!result_.status.ok()) return;
      if (Status status = write(*sink); !status.ok()) {
        result_.status = status;
        result_.exit_code = kSomeFailed;
        result_.output_failed = true;
      }
    }
  }

  void Fail(const Status& status) {
    if (!result_.status.ok()) return;
    result_.status = status;
    result_.exit_code = static_cast<ExitCode>(ExitCodeFor(status));
  }

  StreamRunResult Failed(const Status& status, int code) {
    result_.status = status;
    result_.exit_code = static_cast<ExitCode>(code);
    for (Sink* sink : sinks_) static_cast<void>(sink->Fail(status).ok());
    return std::move(result_);
  }

  StreamRunResult Conclude() {
    const engine::SessionStats stats = session_->stats();
    Summary& summary = result_.summary;
    summary.backend = engine_.info().backend;
    summary.model = engine_.info().model_path;
    summary.delay_ms = options_.session.delay_ms != 0 ? options_.session.delay_ms : engine_.info().default_delay_ms;
    summary.audio_ms = samples_ * 1000 / kSampleRate;
    summary.prompt_tokens = stats.prompt_tokens;
    summary.tokens = stats.tokens;  // a server tells its count, and sends no tokens without text
    summary.wall_seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (!result_.status.ok()) return Failed(result_.status, result_.exit_code);
    builder_.Finish(summary.audio_ms);
    GiveSegments();
    if (!source_status_.ok()) return Failed(source_status_, kInput);
    Write([&](Sink& sink) { return sink.End(builder_.text(), summary); });
    if (result_.status.ok() && summary.interrupted) result_.exit_code = kInterrupted;
    return std::move(result_);
  }

  void ShowStatus() {
    if (finished_ || !screen_.StatusDue()) return;
    if (options_.status_line) return screen_.SetStatus(options_.status_line(position_ms_));
    const double wall = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double position = static_cast<double>(position_ms_) / 1e3;
    const double speed = wall > 0 ? position / wall : 0.0;
    std::string line = FormatClock(position_ms_);
    if (duration_s_ > 0) {
      constexpr int kBar = 24;
      const int filled = std::clamp(static_cast<int>(position / duration_s_ * kBar), 0, kBar);
      line = fmt::format("[{:#<{}}{:-<{}}] {} / {}", "", filled, "", kBar - filled, line,
                         FormatClock(static_cast<int64_t>(duration_s_ * 1e3)));
    }
    line += fmt::format("  {:.1f}x real time", speed);
    if (duration_s_ > 0 && speed > 0) {
      line += fmt::format("  {} left",
                          FormatClock(static_cast<int64_t>(std::max(duration_s_ - position, 0.0) / speed * 1e3)));
    }
    screen_.SetStatus(line);
  }

  engine::Engine& engine_;
  const std::vector<Sink*>& sinks_;
  Screen& screen_;
  const StreamRunOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  std::unique_ptr<engine::Session> session_;
  SampleQueue queue_;
  std::vector<float> block_;  // taken from the queue
  size_t fed_ = 0;            // of block_
  int64_t samples_ = 0;       // fed in all
  bool finishing_ = false;
  bool finished_ = false;
  std::vector<engine::Event> events_;
  text::TranscriptBuilder builder_;
  int64_t position_ms_ = 0;
  double duration_s_ = -1.0;
  uint64_t told_dropped_ = 0;
  Status source_status_;
  StreamRunResult result_;
};

}  // namespace

StreamRunResult RunStream(engine::Engine& engine, audio::AudioSource& source, const std::vector<Sink*>& sinks,
                          Screen& screen, const StreamRunOptions& options) {
  return StreamRun(engine, sinks, screen, options).Run(source);
}

}  // namespace voxrt::app
