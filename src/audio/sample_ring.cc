// Two counters that only grow: the writer owns written_, the reader owns read_; each publishes its own with release and
// reads the other's with acquire.
#include "audio/sample_ring.h"

#include <algorithm>
#include <bit>

namespace voxrt::audio {

SampleRing::SampleRing(size_t capacity) : buffer_(std::bit_ceil(std::max<size_t>(capacity, 1))) {}

void SampleRing::Write(std::span<const float> samples) {
  const uint64_t written = written_.load(std::memory_order_relaxed);
  const size_t room = buffer_.size() - static_cast<size_t>(written - read_.load(std::memory_order_acquire));
  const size_t count = std::min(samples.size(), room);
  const size_t at = static_cast<size_t>(written) & (buffer_.size() - 1);
  const size_t first = std::min(count, buffer_.size() - at);
  std::copy_n(samples.begin(), first, buffer_.begin() + static_cast<std::ptrdiff_t>(at));
  std::copy_n(samples.begin() + static_cast<std::ptrdiff_t>(first), count - first, buffer_.begin());
  if (count < samples.size()) dropped_.fetch_add(samples.size() - count, std::memory_order_relaxed);
  if (count == 0) return;
  written_.store(written + count);
  Wake();
}

void SampleRing::Close() {
  closed_.store(true);
  Wake();
}

void SampleRing::Wake() {
  if (!signalled_.exchange(true)) wake_.release();
}

size_t SampleRing::Read(std::span<float> samples) {
  const uint64_t read = read_.load(std::memory_order_relaxed);
  const size_t count = std::min(samples.size(), static_cast<size_t>(written_.load(std::memory_order_acquire) - read));
  const size_t at = static_cast<size_t>(read) & (buffer_.size() - 1);
  const size_t first = std::min(count, buffer_.size() - at);
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(at), first, samples.begin());
  std::copy_n(buffer_.begin(), count - first, samples.begin() + static_cast<std::ptrdiff_t>(first));
  read_.store(read + count, std::memory_order_release);
  return count;
}

size_t SampleRing::available() const { return static_cast<size_t>(written_.load() - read_.load()); }

bool SampleRing::Wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (available() == 0) {
    if (closed_.load()) return available() > 0;  // written before it was closed
    if (!wake_.try_acquire_until(deadline)) return available() > 0;
    signalled_.store(false);  // before looking again: a write from here on signals again
  }
  return true;
}

}  // namespace voxrt::audio
