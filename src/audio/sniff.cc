// Magic numbers and the order of MP4 boxes; only what decides before a decoder is opened.
#include "audio/sniff.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace voxrt::audio {
namespace {

constexpr size_t kShortHeaderBytes = 8;
constexpr size_t kLongHeaderBytes = 16;

// Audio formats that begin with readable text.
constexpr std::string_view kTextualAudio[] = {"NIST_1A", "#!AMR", "#!SILK", ".snd", "FORM", "caff"};

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool StartsWithAnyCase(std::string_view text, std::string_view lower_prefix) {
  if (text.size() < lower_prefix.size()) return false;
  return std::equal(lower_prefix.begin(), lower_prefix.end(), text.begin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

// Text of any ASCII-compatible encoding has no control bytes but white space; compressed audio soon does.
bool IsText(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7F : (byte >= 0x09 && byte <= 0x0D) || byte == 0x1B;
  });
}

// High bytes everywhere are not text in practice: at least half of it must be ASCII.
bool MostlyAscii(std::string_view head) {
  const auto ascii =
      std::count_if(head.begin(), head.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return static_cast<size_t>(ascii) * 2 >= head.size();
}

uint64_t BigEndian(const std::byte* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

}  // namespace

std::optional<std::string> SniffNotAudio(std::span<const std::byte> head, bool whole) {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (StartsWith(text, "\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string_view trimmed = text.substr(first);
  if (StartsWith(text, "version https://git-lfs")) {
    return "a Git LFS pointer, not the file itself (run git lfs pull)";
  }
  if (StartsWithAnyCase(trimmed, "<!doctype") || StartsWithAnyCase(trimmed, "<html") ||
      StartsWithAnyCase(trimmed, "<?xml")) {
    return "a web page or XML (a failed download?)";
  }
  if (StartsWith(text, "#EXTM3U") || StartsWith(text, "ffconcat") || StartsWithAnyCase(text, "[playlist]")) {
    return "a playlist (name the audio files themselves)";
  }
  for (std::string_view magic : kTextualAudio) {
    if (StartsWith(text, magic)) return std::nullopt;
  }
  constexpr size_t kEnoughBytes = 64;
  if ((whole || text.size() >= kEnoughBytes) && IsText(text) && MostlyAscii(text)) return "text";
  return std::nullopt;
}

bool Mp4BoxOrder::Push(std::span<const std::byte> bytes) {
  while (!bytes.empty() && verdict_ == Verdict::kOpen) {
    if (skip_ > 0) {
      const size_t count = static_cast<size_t>(std::min<uint64_t>(skip_, bytes.size()));
      skip_ -= count;
      bytes = bytes.subspan(count);
      continue;
    }
    header_[header_size_++] = bytes.front();
    bytes = bytes.subspan(1);
    const bool is_long = header_size_ >= kShortHeaderBytes && BigEndian(header_, 4) == 1;
    if (header_size_ == (is_long ? kLongHeaderBytes : kShortHeaderBytes)) TakeHeader();
  }
  return verdict_ != Verdict::kTrailingIndex;
}

void Mp4BoxOrder::TakeHeader() {
  const std::string_view name(reinterpret_cast<const char*>(header_) + 4, 4);
  const uint64_t size = header_size_ == kLongHeaderBytes ? BigEndian(header_ + 8, 8) : BigEndian(header_, 4);
  const bool is_mp4 = name == "ftyp" || name == "wide" || name == "free" || name == "skip" || name == "mdat" ||
                      name == "moov" || name == "styp" || name == "uuid" || name == "pnot";
  if (name == "mdat") verdict_ = Verdict::kTrailingIndex;
  if (name == "moov" || (first_ && !is_mp4) || size < header_size_)
    verdict_ = Verdict::kStreamable;  // or no MP4 at all
  first_ = false;
  skip_ = size - std::min<uint64_t>(size, header_size_);
  header_size_ = 0;
}

}  // namespace voxrt::audio
