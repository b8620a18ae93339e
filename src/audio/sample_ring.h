// SampleRing: samples from a real-time callback to an ordinary thread. One writer, one reader. The writer never locks,
// allocates or waits; what does not fit is dropped (the newest samples, so that what is read stays in order) and
// counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <semaphore>
#include <span>
#include <vector>

namespace voxrt::audio {

class SampleRing {
 public:
  // Holds at least `capacity` samples.
  explicit SampleRing(size_t capacity);

  // Writer.
  void Write(std::span<const float> samples);
  void Close();  // nothing follows

  // Reader. Returns how many samples were there, without waiting.
  size_t Read(std::span<float> samples);
  // Waits until there are samples (true) or until the ring is closed and empty or the time is over (false).
  bool Wait(std::chrono::milliseconds timeout);

  // Anyone.
  size_t available() const;
  size_t capacity() const { return buffer_.size(); }
  bool closed() const { return closed_.load(); }
  uint64_t dropped_samples() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  void Wake();

  std::vector<float> buffer_;          // [capacity], a power of two
  std::atomic<uint64_t> written_ = 0;  // ever; the slot is written_ % capacity
  std::atomic<uint64_t> read_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  std::atomic<bool> closed_ = false;
  std::atomic<bool> signalled_ = false;  // keeps the semaphore at 1 at most
  std::binary_semaphore wake_{0};
};

}  // namespace voxrt::audio
