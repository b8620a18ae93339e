// Tekken: the vocabulary of tekken.json. Only decoding is needed: id -> bytes, special ids by their string
// (docs/model.md 9.4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace voxrt::text {

class Tekken {
 public:
  static Result<Tekken> Parse(std::string_view tekken_json);

  // Text bytes of an id; empty for special ids and ids without an entry.
  std::string_view Bytes(int32_t id) const {
    const int64_t i = static_cast<int64_t>(id) - special_count_;
    return i >= 0 && i < static_cast<int64_t>(pieces_.size()) ? std::string_view(pieces_[static_cast<size_t>(i)])
                                                              : std::string_view();
  }
  bool IsSpecial(int32_t id) const { return id < special_count_; }

  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  int32_t pad() const { return pad_; }                   // [STREAMING_PAD]
  std::optional<int32_t> word() const { return word_; }  // [STREAMING_WORD]
  int vocab_size() const { return vocab_size_; }
  int special_count() const { return special_count_; }
  int left_pad_tokens() const { return left_pad_tokens_; }    // default 32
  int default_delay_ms() const { return default_delay_ms_; }  // default 480

 private:
  std::vector<std::string> pieces_;
  int32_t bos_ = 0, eos_ = 0, pad_ = 0;
  std::optional<int32_t> word_;
  int vocab_size_ = 0;
  int special_count_ = 0;
  int left_pad_tokens_ = 32;
  int default_delay_ms_ = 480;
};

}  // namespace voxrt::text
