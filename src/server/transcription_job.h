// TranscriptionJob: one uploaded file to text on a worker thread: decode, feed, write the answer piece by piece.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "audio/source.h"
#include "server/admission.h"
#include "server/http/http_error.h"
#include "server/http/transcription_writer.h"
#include "server/state.h"
#include "server/upload_file.h"

namespace voxrt::server {

class TranscriptionJob {
 public:
  // Both are called on the worker thread; the last call is the one with `done`.
  using OnOutput = std::function<void(std::string bytes, bool done)>;
  using OnFailure = std::function<void(HttpError error)>;

  TranscriptionJob(std::shared_ptr<ServerState> state, TranscriptionRequest request, std::shared_ptr<UploadFile> file);
  void SetCallbacks(OnOutput on_output, OnFailure on_failure);
  // The client is gone: the work stops soon.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  void Run();
  TranscriptionWriter& writer() { return writer_; }

 private:
  Status Transcribe(engine::Session& session, audio::AudioSource& source, TranscriptionStats* stats);
  int32_t TextId(const engine::Event& event) const;
  Status Drain(engine::Session& session, std::chrono::milliseconds wait, bool* finished);
  Result<std::unique_ptr<engine::Session>> OpenSession();
  static HttpError ToHttpError(const Status& status);
  std::string WithoutPath(std::string message) const;

  const std::shared_ptr<ServerState> state_;
  const TranscriptionRequest request_;
  const std::shared_ptr<UploadFile> file_;
  TranscriptionWriter writer_;
  OnOutput on_output_;
  OnFailure on_failure_;
  std::atomic<bool> cancelled_{false};
  int64_t tokens_ = 0;
  std::vector<engine::Event> events_;
};

// Runs jobs on a few threads, first come first served.
class JobPool {
 public:
  explicit JobPool(int threads);
  ~JobPool();
  void Add(std::shared_ptr<TranscriptionJob> job);

 private:
  void Loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<TranscriptionJob>> jobs_;
  std::vector<std::shared_ptr<TranscriptionJob>> running_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace voxrt::server
