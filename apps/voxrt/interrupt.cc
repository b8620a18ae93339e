// Signal handlers; see the header. The flag is the one process-wide variable here: a handler can reach nothing else.
#include "interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "cli.h"

namespace voxrt::app {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void OnSignal(int) {
  if (interrupted.exchange(true)) _exit(kInterrupted);
}

// A process may be started with standard descriptors closed. The stand-in for an output is read-only, so that writing
// still fails.
void OpenIfClosed(int descriptor, int flags) {
  if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) return;
  const int opened = open("/dev/null", flags);
  if (opened != -1 && opened != descriptor) {
    dup2(opened, descriptor);
    close(opened);
  }
}

}  // namespace

void InstallProcessHandlers() {
  OpenIfClosed(STDIN_FILENO, O_RDONLY);
  OpenIfClosed(STDOUT_FILENO, O_RDONLY);
  OpenIfClosed(STDERR_FILENO, O_WRONLY);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);  // no SA_RESTART: a blocked read returns and looks at the flag
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // a limit of file size fails the write, as a full disk does
}

const std::atomic<bool>* InterruptFlag() { return &interrupted; }

}  // namespace voxrt::app
