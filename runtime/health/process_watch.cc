#include "runtime/health/process_watch.h"

#include "runtime/base/process_end.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo {

ProcessWatch::ProcessWatch(const World& world, const Log& log) {
  const RankInfo& mine = world.info(world.rank());
  for (int rank = 0; rank < world.size(); ++rank) {
    const RankInfo& other = world.info(rank);
    // Ranks that are threads of this process end with it.
    if (other.pid_namespace != mine.pid_namespace || other.pid == mine.pid) continue;
    UniqueDescriptor pidfd = open_process(other.pid);
    // The process ended before this watch began: use a descriptor that is readable at once.
    if (!pidfd && errno == ESRCH) pidfd.reset(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!pidfd || !add(rank, std::move(pidfd))) {
      log.debug("cannot watch the process of rank {} (pid {}): {}", rank, other.pid,
                std::strerror(errno));
    }
  }
}

bool ProcessWatch::add(int rank, UniqueDescriptor pidfd) {
  if (!any_) any_.reset(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(rank);
  if (!any_ || ::epoll_ctl(any_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) return false;
  pidfds_.emplace(rank, std::move(pidfd));
  return true;
}

std::vector<int> ProcessWatch::exited() {
  std::vector<int> ranks;
  std::array<epoll_event, 64> events;
  while (!pidfds_.empty()) {
    const int count =
        ::epoll_wait(any_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/0);
    if (count <= 0) break;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const auto ended = pidfds_.find(static_cast<int>(events[i].data.u32));
      // Closing is not enough: a child that was forked meanwhile has the descriptor open, too.
      ::epoll_ctl(any_.get(), EPOLL_CTL_DEL, ended->second.get(), nullptr);
      ranks.push_back(ended->first);
      pidfds_.erase(ended);
    }
  }
  return ranks;
}

}  // namespace kolo
