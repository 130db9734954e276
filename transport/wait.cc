// See wait.h.
#include "transport/wait.h"

#include "transport/transport.h"

#include <poll.h>
#include <sched.h>

namespace kolo {
namespace {

// Polls, then yields, then sleeps: measured best or nearly best with 2 and with 4 ranks on 2 cores.
constexpr int kPolls = 200;
constexpr int kYields = 20;
// Libraries miss wake-ups, and an abort signals no descriptor: never sleep longer than this.
constexpr auto kLongestSleep = std::chrono::milliseconds(10);

}  // namespace

Status progress_until(Transport& transport, const std::function<bool()>& done, const Abort& abort,
                      Deadline deadline, std::string_view doing) {
  int idle = 0;
  while (!done()) {
    if (abort.raised()) return abort.error();
    if (deadline.expired()) return KOLO_ERROR(kTimeout, "the deadline passed while {}", doing);
    if (transport.progress()) {
      idle = 0;
    } else if (++idle > kPolls + kYields) {
      if (!transport.arm()) continue;
      const auto left = deadline.remaining(kLongestSleep);
      pollfd descriptor{.fd = transport.event_fd(), .events = POLLIN, .revents = 0};
      // Rounded up, to sleep through the last millisecond instead of spinning.
      const auto bound = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      poll(&descriptor, 1, static_cast<int>(bound));
    } else if (idle > kPolls) {
      sched_yield();
    }
  }
  return {};
}

}  // namespace kolo
