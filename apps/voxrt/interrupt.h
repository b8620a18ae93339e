// Ctrl-C and termination: the first signal raises a flag that loops look at, so that what was heard is still printed;
// the second ends the process at once. A closed pipe is an error code of write, not a signal.
#pragma once

#include <atomic>

namespace voxrt::app {

// Installs the handlers and makes sure that descriptors 0 to 2 exist, so that no file opened later takes their place.
void InstallProcessHandlers();

// True once SIGINT or SIGTERM has come. The flag lives as long as the process.
const std::atomic<bool>* InterruptFlag();
inline bool Interrupted() { return InterruptFlag()->load(std::memory_order_relaxed); }

}  // namespace voxrt::app
