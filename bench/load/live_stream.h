// A paced client of vLLM's realtime dialect, cheap enough that many of them share two cores with the server they load:
// messages are made once per track, one thread serves all sockets. It asks for token times (docs/server.md), so that
// every piece of text says which audio it needed.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::bench {

using Clock = std::chrono::steady_clock;

inline constexpr int kRate = 16000;
inline constexpr int kChunkSamples = 1280;  // 80 ms
inline constexpr auto kChunkTime = std::chrono::milliseconds(80);

// Audio that repeats, a whole number of chunks.
struct Track {
  std::vector<int16_t> samples;
  std::vector<std::string> frames;  // of each chunk: its append message as a WebSocket frame
};
// `first` is the clip that the track begins with.
Result<Track> MakeTrack(const std::vector<std::string>& clips, size_t first);

struct StreamPlan {
  const Track* track = nullptr;
  int64_t chunks = 0;  // to send
  int delay_ms = 480;
  Clock::time_point start;
};

// Of one piece of text, in milliseconds.
struct Lag {
  Clock::time_point arrival;
  double beyond_delay = 0.0;  // since the sample at the end of the piece plus the delay was sent
  double beyond_need = 0.0;   // since the last sample that the model needs for it was sent (2.5 ms of audio more)
};

class LiveStream {
 public:
  // Connects, upgrades, begins the generation; blocks until the server has greeted.
  static Result<std::unique_ptr<LiveStream>> Open(const std::string& host, int port, const std::string& api_key,
                                                  StreamPlan plan);
  ~LiveStream();

  int fd() const { return fd_; }
  bool over() const { return over_; }
  // Empty when the final text came.
  const std::string& failure() const { return failure_; }
  const std::string& text() const { return text_; }
  const std::vector<Lag>& lags() const { return lags_; }
  // How late this program itself sent its chunks, in milliseconds.
  const std::vector<float>& send_late_ms() const { return send_late_ms_; }
  // From the end of the audio to the final text; < 0 before.
  double final_ms() const { return final_ms_; }
  int64_t chunks_sent() const { return static_cast<int64_t>(sent_at_.size()); }

  // When the next chunk, or the end, is to be sent; max() when all was sent.
  Clock::time_point due() const;
  void SendDue(Clock::time_point now);
  bool wants_write() const { return !outbound_.empty(); }
  void OnWritable();
  void OnReadable();

 private:
  explicit LiveStream(StreamPlan plan) : plan_(plan) {}
  Status Connect(const std::string& host, int port);
  Status Greet(const std::string& host, int port, const std::string& api_key);
  Status ReadMore();
  bool NextFrame(int* opcode, std::string* payload);
  void OnMessage(std::string_view message, Clock::time_point now);
  void Send(std::string_view bytes);
  void Fail(std::string why);
  double SinceSent(int64_t sample, Clock::time_point now) const;

  const StreamPlan plan_;
  int fd_ = -1;
  bool over_ = false;
  bool ended_ = false;  // the last commit was sent
  std::string failure_;
  std::string inbound_, outbound_;
  std::vector<Clock::time_point> sent_at_;  // of each chunk
  Clock::time_point ended_at_;
  std::vector<Lag> lags_;
  std::vector<float> send_late_ms_;
  double final_ms_ = -1.0;
  std::string deltas_, text_;
};

}  // namespace voxrt::bench
