#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace voxrt::base {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "voxrt: internal error at %s:%d: CHECK(%s) failed\n", file, line, condition);
  std::abort();
}

}  // namespace voxrt::base
