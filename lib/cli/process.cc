#include "process.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace shardcheck {
namespace {

/// Async-signal-safe throughout.
extern "C" void end_cleanly(int signal) {
  constexpr char kClearLine[] = "\r\033[K";
  if (::isatty(STDERR_FILENO) == 1 && ::write(STDERR_FILENO, kClearLine, sizeof kClearLine - 1) < 0) {
    // Nobody is left to tell.
  }
  ::raise(signal);  // SA_RESETHAND: the default action, as soon as this returns
}

void open_closed_streams() {
  // The lowest free descriptor is taken, in order: what opens here is the stream that was closed.
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) != stream) return;
}

}  // namespace

void prepare_process() {
  open_closed_streams();
  struct sigaction action {};
  action.sa_handler = end_cleanly;
  action.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace shardcheck
