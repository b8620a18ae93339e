#include "server/transcription_job.h"

#include <algorithm>

#include "audio/source.h"

namespace voxrt::server {
namespace {

constexpr size_t kReadSamples = 16000;
constexpr auto kPoll = std::chrono::milliseconds(50);

}  // namespace

TranscriptionJob::TranscriptionJob(std::shared_ptr<ServerState> state, TranscriptionRequest request,
                                   std::shared_ptr<UploadFile> file)
    : state_(std::move(state)),
      request_(std::move(request)),
      file_(std::move(file)),
      writer_(request_, state_->NewId("trsc"), state_->created_unix_s) {}

void TranscriptionJob::SetCallbacks(OnOutput on_output, OnFailure on_failure) {
  on_output_ = std::move(on_output);
  on_failure_ = std::move(on_failure);
}

// Messages name the file by its path, which means nothing to the client.
std::string TranscriptionJob::WithoutPath(std::string message) const {
  const std::string path = file_->path();
  for (size_t at = 0; (at = message.find(path, at)) != std::string::npos;)
    message.replace(at, path.size(), "the upload");
  return message;
}

HttpError TranscriptionJob::ToHttpError(const Status& status) {
  const std::string message = WithoutFlags(status.message());
  switch (status.code()) {
    case StatusCode::kResourceExhausted:
      return {503, message, {}, "server_full"};
    case StatusCode::kInvalidAudio:
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
      return BadRequest("The audio cannot be read: " + message, "file", "invalid_audio");
    default:
      return {500, message, {}, "engine_error"};
  }
}

Result<std::unique_ptr<engine::Session>> TranscriptionJob::OpenSession() {
  engine::SessionOptions options;
  options.delay_ms = request_.delay_ms != 0 ? request_.delay_ms : state_->options.default_delay_ms;
  options.temperature = static_cast<float>(request_.temperature);
  options.all_tokens = true;
  options.live = request_.sse != SseForm::kNone;
  return state_->engine->NewSession(options);
}

void TranscriptionJob::Run() {
  if (cancelled_) return;
  // The path is resolved by the descriptor, which seeks back to the beginning for every opener.
  Result<std::unique_ptr<audio::AudioSource>> source = audio::OpenFile(file_->path(), {});
  if (!source.ok())
    return on_failure_(ToHttpError({StatusCode::kInvalidAudio, WithoutPath(source.status().message())}));
  Result<std::unique_ptr<engine::Session>> session = OpenSession();
  if (!session.ok()) return on_failure_(ToHttpError(session.status()));
  TranscriptionStats stats;
  const Status status = Transcribe(**session, **source, &stats);
  if (cancelled_) return;
  if (!status.ok()) return on_failure_(ToHttpError({status.code(), WithoutPath(status.message())}));
  state_->metrics.OnAudioTranscribed(static_cast<double>(stats.duration_ms) / 1000.0);
  state_->metrics.OnPrompt(stats.prompt_tokens);
  on_output_(writer_.Finish(stats), true);
}

Status TranscriptionJob::Transcribe(engine::Session& session, audio::AudioSource& source, TranscriptionStats* stats) {
  std::vector<float> samples(kReadSamples);
  bool finished = false;
  int64_t total = 0;
  while (!cancelled_) {
    VOXRT_ASSIGN_OR_RETURN(const size_t count, source.Read(samples));
    if (count == 0) break;
    total += static_cast<int64_t>(count);
    state_->metrics.OnAudioReceived(static_cast<double>(count) / 16000.0);
    std::span<const float> rest(samples.data(), count);
    while (!rest.empty() && !cancelled_) {
      VOXRT_ASSIGN_OR_RETURN(const size_t taken, session.Feed(rest));
      rest = rest.subspan(taken);
      VOXRT_RETURN_IF_ERROR(Drain(session, taken == 0 ? kPoll : std::chrono::milliseconds(0), &finished));
    }
  }
  if (cancelled_) return {};
  if (total == 0) return {};  // no sound, no text
  VOXRT_RETURN_IF_ERROR(session.Finish());
  while (!finished && !cancelled_) VOXRT_RETURN_IF_ERROR(Drain(session, kPoll, &finished));
  *stats = {.duration_ms = total / 16, .prompt_tokens = session.stats().prompt_tokens, .completion_tokens = tokens_};
  return {};
}

// The id of a token of text, also of one whose bytes complete a character only later; else -1.
int32_t TranscriptionJob::TextId(const engine::Event& event) const {
  return event.type == engine::EventType::kToken && !state_->engine->tekken().IsSpecial(event.token) ? event.token : -1;
}

Status TranscriptionJob::Drain(engine::Session& session, std::chrono::milliseconds wait, bool* finished) {
  if (!session.Wait(&events_, wait)) return {};
  std::string out;
  for (const engine::Event& event : events_) {
    if (event.type == engine::EventType::kError) return event.status;
    if (event.type == engine::EventType::kFinished) *finished = true;
    if (event.type == engine::EventType::kToken) {
      ++tokens_;
      state_->metrics.OnToken(!event.text.empty());
    }
    if (event.type == engine::EventType::kToken || !event.text.empty())
      out += writer_.OnToken(event.text, event.word_mark, event.end_ms, TextId(event));
  }
  if (!out.empty() && !cancelled_) on_output_(std::move(out), false);
  return {};
}

JobPool::JobPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

JobPool::~JobPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& job : running_) job->Cancel();
    jobs_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void JobPool::Add(std::shared_ptr<TranscriptionJob> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void JobPool::Loop() {
  for (;;) {
    std::shared_ptr<TranscriptionJob> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      running_.push_back(job);
    }
    job->Run();
    const std::lock_guard lock(mutex_);
    std::erase(running_, job);
  }
}

}  // namespace voxrt::server
