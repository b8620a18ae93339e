// Utf8Assembler: collects token bytes and hands out whole code points only (docs/model.md 9.5). Every returned piece is
// valid UTF-8; bytes that can never become valid are U+FFFD; at most 3 bytes are held back.
#pragma once

#include <string>
#include <string_view>

namespace voxrt::text {

class Utf8Assembler {
 public:
  std::string Push(std::string_view bytes);
  // End or hard reset: an incomplete rest becomes U+FFFD.
  std::string Finish();

 private:
  std::string held_;
};

}  // namespace voxrt::text
