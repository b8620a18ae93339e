// What the first bytes of an input give away. Pure functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace voxrt::audio {

// A phrase for "found ..." when the bytes are certainly no audio: a Git LFS pointer, a web page, a playlist, other
// text. Absent when they may be audio. `whole`: nothing follows these bytes.
std::optional<std::string> SniffNotAudio(std::span<const std::byte> head, bool whole);

// Follows the top-level boxes of an MP4 file as its bytes pass by. Without its index (moov) before the samples (mdat)
// such a file can be decoded only by seeking.
class Mp4BoxOrder {
 public:
  // Takes the next bytes. False from the moment that mdat came before moov.
  bool Push(std::span<const std::byte> bytes);

 private:
  enum class Verdict { kOpen, kStreamable, kTrailingIndex };
  void TakeHeader();

  Verdict verdict_ = Verdict::kOpen;
  std::byte header_[16] = {};  // size, name and, where size is 1, the long size
  size_t header_size_ = 0;
  uint64_t skip_ = 0;  // bytes left of the current box
  bool first_ = true;
};

}  // namespace voxrt::audio
