#include "server/net/outbound_queue.h"

namespace voxrt::server {
namespace {

// Merged deltas stay far below 1 MiB, the largest message that python's websockets accepts, even when every byte is
// escaped.
constexpr size_t kMaxDeltaBytes = 128 * 1024;

}  // namespace

void OutboundQueue::Push(Frame frame) {
  if (frame.is_delta() && !frames_.empty()) {
    Frame& last = frames_.back();
    if (last.merge_key == frame.merge_key && last.delta.size() + frame.delta.size() <= kMaxDeltaBytes) {
      last.delta += frame.delta;
      bytes_ += static_cast<int64_t>(frame.delta.size());
      return;
    }
  }
  bytes_ += Size(frame);
  frames_.push_back(std::move(frame));
}

std::optional<std::string> OutboundQueue::Pop(bool hold_deltas) {
  if (frames_.empty()) return std::nullopt;
  // A held delta goes out as soon as something that is no delta waits behind it.
  if (hold_deltas && frames_.back().is_delta()) {
    bool only_deltas = true;
    for (const Frame& frame : frames_) only_deltas = only_deltas && frame.is_delta();
    if (only_deltas) return std::nullopt;
  }
  std::string message = Serialize(frames_.front());
  bytes_ -= Size(frames_.front());
  frames_.pop_front();
  return message;
}

}  // namespace voxrt::server
