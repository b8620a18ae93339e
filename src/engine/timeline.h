// Timeline: maps the end of a token's frame in everything that went through the model (fed audio plus zeros inserted by
// flushes) to the fed audio alone. Insertions before text that was already given out are folded into one sum, so memory
// stays bounded.
#pragma once

#include <cstdint>
#include <deque>

namespace voxrt::engine {

class Timeline {
 public:
  // `samples` zeros were inserted after `position` samples (fed and inserted, left pad excluded).
  void Insert(int64_t position, int64_t samples) { insertions_.push_back({position, samples}); }

  // End of the frame that ends after `position` samples, in fed samples; positions must not fall.
  int64_t ToFed(int64_t position) {
    while (!insertions_.empty() && insertions_.front().position + insertions_.front().samples <= position) {
      folded_ += insertions_.front().samples;
      insertions_.pop_front();
    }
    // Inside an insertion time stands still at its beginning.
    if (!insertions_.empty() && position > insertions_.front().position) position = insertions_.front().position;
    return position - folded_;
  }

 private:
  struct Insertion {
    int64_t position;
    int64_t samples;
  };
  std::deque<Insertion> insertions_;
  int64_t folded_ = 0;
};

}  // namespace voxrt::engine
