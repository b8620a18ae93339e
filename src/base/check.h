// CHECK: for our own bugs only. A failed check prints file, line and condition and aborts; it must not be reachable
// from any outside input (files, sockets, flags give Status instead).
#pragma once

namespace voxrt::base {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace voxrt::base

#define VOXRT_CHECK(condition)                                    \
  do {                                                            \
    if (!(condition)) [[unlikely]]                                \
      ::voxrt::base::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef NDEBUG
#define VOXRT_DCHECK(condition) \
  do {                          \
  } while (false)
#else
#define VOXRT_DCHECK(condition) VOXRT_CHECK(condition)
#endif
