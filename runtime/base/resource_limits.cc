#include "runtime/base/resource_limits.h"

#include "runtime/base/check.h"
#include "runtime/base/open_files.h"
#include "runtime/base/system_error.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <system_error>
#include <thread>

namespace kolo {
namespace {

namespace fs = std::filesystem;

// UCX opens about 20 files on a host without network cards, kolo opens a dozen, and each further
// rank of the host adds some.
constexpr std::size_t kDescriptors = 64;
// UCX's queue for messages inside this host is one file of 4.3 MB, created at start.
constexpr std::size_t kQueueBytes = 5 << 20;
// Threads of UCX, the driver, the store and the timeline.
constexpr std::size_t kThreads = 4;
// Address space that UCX and kolo map at start, besides the program's own.
constexpr std::size_t kAddresses = std::size_t{128} << 20;

rlim_t limit_of(__rlimit_resource resource) {
  rlimit limit = {};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

/// "1024 KiB" or "no limit".
std::string kib(rlim_t bytes) {
  return bytes == RLIM_INFINITY ? "no limit" : fmt::format("{} KiB", bytes >> 10);
}

ResourceLimit open_files() {
  std::error_code error;
  const fs::directory_iterator all("/proc/self/fd", error);
  const auto used = error ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_max = RLIM_INFINITY;
  // check_resource_limits() raises the soft limit, and later steps raise it as ranks need it. So
  // the hard limit counts here.
  const bool is_enough = files.rlim_max == RLIM_INFINITY || files.rlim_max >= used + kDescriptors;
  return {fmt::format("open files: {}, of which {} are in use (ulimit -Hn)",
                      files.rlim_max == RLIM_INFINITY ? "no limit" : std::to_string(files.rlim_max),
                      used),
          is_enough,
          fmt::format("kolo and UCX need {} to start, and some for each other rank: ulimit -Hn "
                      "65536 (LimitNOFILE=, limits.conf)",
                      kDescriptors)};
}

ResourceLimit file_size(bool shares_memory) {
  const rlim_t most = limit_of(RLIMIT_FSIZE);
  return {fmt::format("size of a file: {} (ulimit -f)", kib(most)),
          !shares_memory || most == RLIM_INFINITY || most >= kQueueBytes,
          "the memory that ranks of a host share counts as files: ulimit -f unlimited"};
}

ResourceLimit device_shm(bool shares_memory) {
  struct statvfs room = {};
  if (::statvfs("/dev/shm", &room) != 0) return {"/dev/shm: not there, so UCX takes other memory"};
  const int error = ::access("/dev/shm", W_OK) == 0 ? 0 : errno;
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  return {
      error != 0 ? fmt::format("/dev/shm: {}", reason(error))
                 : fmt::format("/dev/shm: {} MiB free", free >> 20),
      !shares_memory || (error == 0 && free >= kQueueBytes),
      "UCX needs about 5 MB of it for each rank: give it room (docker run --shm-size=1g), or do "
      "without (UCX_TLS=tcp,self)"};
}

ResourceLimit addresses() {
  const rlim_t most = limit_of(RLIMIT_AS);
  if (most == RLIM_INFINITY) return {"addresses: no limit (ulimit -v)"};
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t used = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {fmt::format("addresses: {}, of which {} are in use (ulimit -v)", kib(most), kib(used)),
          most >= used + kAddresses,
          fmt::format("kolo and UCX map {} MiB at start: ulimit -v unlimited", kAddresses >> 20)};
}

ResourceLimit threads() {
  std::string state = "more can be started";
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> started;
  try {
    while (started.size() < kThreads) started.emplace_back([ended] { ended.wait(); });
  } catch (const std::system_error& error) {
    state = fmt::format("{} more can be started ({})", started.size(), error.code().message());
  }
  end.set_value();
  for (std::thread& thread : started) thread.join();
  return {"threads: " + state, started.size() == kThreads,
          fmt::format("kolo and UCX take up to {}: ulimit -u, or the container's limit (docker run "
                      "--pids-limit)",
                      kThreads)};
}

}  // namespace

std::vector<ResourceLimit> resource_limits(const Environment& environment) {
  // A user who sets UCX_TLS knows what these transports need.
  const bool shares_memory = !environment.get("UCX_TLS").has_value();
  return {open_files(), file_size(shares_memory), device_shm(shares_memory), addresses(),
          threads()};
}

Status check_resource_limits(const Environment& environment) {
  make_room_for_files(kOtherDescriptors);
  std::string all;
  for (const ResourceLimit& limit : resource_limits(environment))
    if (!limit.is_enough)
      all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", limit.what, limit.remedy);
  if (all.empty()) return {};
  return KOLO_ERROR(kOutOfMemory, "this process is not given what it needs: {}", all);
}

FileSizeErrors::FileSizeErrors() {
  sigset_t at_limit;
  ::sigemptyset(&at_limit);
  ::sigaddset(&at_limit, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &at_limit, &before_);
}

FileSizeErrors::~FileSizeErrors() {
  // Discards a SIGXFSZ that came meanwhile: unblocking would deliver it.
  sigset_t at_limit;
  ::sigemptyset(&at_limit);
  ::sigaddset(&at_limit, SIGXFSZ);
  const timespec at_once = {};
  if (::sigismember(&before_, SIGXFSZ) == 0)
    while (::sigtimedwait(&at_limit, nullptr, &at_once) == SIGXFSZ) continue;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace kolo
