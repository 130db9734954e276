#include "runtime/health/process_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kolo {

ProcessWatch::ProcessWatch(const World& world, const Log& log) {
  const RankInfo& mine = world.info(world.rank());
  for (int rank = 0; rank < world.size(); ++rank) {
    const RankInfo& other = world.info(rank);
    // Ranks that are threads of this process end with it.
    if (other.pid_namespace != mine.pid_namespace || other.pid == mine.pid) continue;
    UniqueDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, other.pid, 0)));
    // Ended before we could watch it: a descriptor that is readable from the start says so.
    if (!pidfd && errno == ESRCH) pidfd.reset(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    if (pidfd) {
      watched_.push_back({rank, std::move(pidfd)});
    } else {
      log.debug("cannot watch the process of rank {} (pid {}): {}", rank, other.pid,
                std::strerror(errno));
    }
  }
  list_descriptors();
}

std::vector<int> ProcessWatch::exited() {
  if (watched_.empty()) return {};
  std::vector<pollfd> polled;
  for (const Watched& watched : watched_) polled.push_back({watched.pidfd.get(), POLLIN, 0});
  if (::poll(polled.data(), polled.size(), 0) <= 0) return {};
  std::vector<int> ranks;
  for (std::size_t i = polled.size(); i-- > 0;) {
    if (polled[i].revents == 0) continue;
    ranks.push_back(watched_[i].rank);
    watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  list_descriptors();
  return ranks;
}

void ProcessWatch::list_descriptors() {
  descriptors_.clear();
  for (const Watched& watched : watched_) descriptors_.push_back(watched.pidfd.get());
}

}  // namespace kolo
