// What a hub sends or a previous run left: listings, Content-Range, ETag, the state of a partial download. The first
// byte chooses.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "hub/listing.h"
#include "hub/part_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: {
      auto listing = voxrt::hub::ParseRepoListing(text);
      if (!listing.ok()) break;
      for (const auto& file : listing->files) {
        if (file.path.find("..") == 0 || file.path.front() == '/') abort();
      }
      (void)voxrt::hub::SelectCheckpointFiles(*listing);
      break;
    }
    case 1: {
      auto range = voxrt::hub::ParseContentRange(text);
      if (range.has_value() && (range->first < 0 || range->last >= range->total)) abort();
      break;
    }
    case 2: {
      voxrt::hub::RemoteFile file;
      voxrt::hub::ApplyEtag(text, &file);
      break;
    }
    default:
      (void)voxrt::hub::ParsePartState(text, {"abc", 25, 10});
      break;
  }
  return 0;
}
