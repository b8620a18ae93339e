// OutboundQueue: messages waiting for a slow client. Pending deltas of one item are merged, everything else keeps its
// place; finals are never dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "server/protocol/events.h"

namespace voxrt::server {

class OutboundQueue {
 public:
  void Push(Frame frame);
  // The next message as it goes on the wire; nullopt when empty, or when only deltas at the front are held back.
  std::optional<std::string> Pop(bool hold_deltas);
  bool empty() const { return frames_.empty(); }
  int64_t bytes() const { return bytes_; }

 private:
  static int64_t Size(const Frame& frame) {
    return static_cast<int64_t>(frame.text.size() + frame.delta.size() + frame.suffix.size());
  }

  std::deque<Frame> frames_;
  int64_t bytes_ = 0;
};

}  // namespace voxrt::server
