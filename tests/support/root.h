// Where tests find repository data (models/demo, tests/golden, testdata).
#pragma once

#include <cstdlib>
#include <string>

namespace voxrt::test {

// The environment variable VOXRT_TEST_ROOT, for binaries carried to another machine; else where they were compiled
// from. In a header, because the latter comes with each test target.
inline std::string Root() {
  const char* root = std::getenv("VOXRT_TEST_ROOT");
  return root != nullptr && *root != '\0' ? root : VOXRT_SOURCE_DIR;
}

}  // namespace voxrt::test
