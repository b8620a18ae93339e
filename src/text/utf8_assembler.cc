// Follows the Unicode standard's "maximal subpart" practice: a run of bytes that starts like a code point and then
// breaks off is one U+FFFD, and reading goes on at the byte that broke it.
#include "text/utf8_assembler.h"

#include <cstddef>

namespace voxrt::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  size_t length = 0;  // of the whole sequence; 0 = no sequence starts with this byte
  unsigned second_min = 0x80;
  unsigned second_max = 0xbf;  // the second byte's range excludes overlong forms, surrogates and values above U+10FFFF
};

Lead ReadLead(unsigned byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xc2 && byte <= 0xdf) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  if (byte >= 0xf1 && byte <= 0xf3) return {4};
  return {};
}

// How many bytes from `at` on fit the sequence of `lead` (at least 1, at most its length).
size_t FittingBytes(std::string_view bytes, size_t at, const Lead& lead) {
  size_t count = 1;
  while (count < lead.length && at + count < bytes.size()) {
    const unsigned byte = static_cast<unsigned char>(bytes[at + count]);
    const bool fits = count == 1 ? byte >= lead.second_min && byte <= lead.second_max : (byte & 0xc0u) == 0x80u;
    if (!fits) break;
    ++count;
  }
  return count;
}

}  // namespace

std::string Utf8Assembler::Push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    joined += bytes;
    bytes = joined;
  }
  held_.clear();
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Lead lead = ReadLead(static_cast<unsigned char>(bytes[at]));
    const size_t fitting = FittingBytes(bytes, at, lead);
    if (fitting == lead.length) {
      out.append(bytes.substr(at, fitting));
    } else if (lead.length != 0 && at + fitting == bytes.size()) {
      held_ = bytes.substr(at);
      break;
    } else {
      out += kReplacement;
    }
    at += fitting;
  }
  return out;
}

std::string Utf8Assembler::Finish() {
  const bool incomplete = !held_.empty();
  held_.clear();
  return incomplete ? std::string(kReplacement) : std::string();
}

}  // namespace voxrt::text
