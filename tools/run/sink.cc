#include "tools/run/sink.h"

#include "runtime/base/check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

namespace kolo::run {

std::shared_ptr<Sink> Sink::to_descriptor(int fd, std::string name, std::string whose) {
  std::shared_ptr<Sink> sink(new Sink(std::move(name), std::move(whose)));
  sink->fd_ = fd;
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || S_ISREG(status.st_mode)) return sink;
  sink->is_socket_ = S_ISSOCK(status.st_mode);
  // Open the descriptor anew: O_NONBLOCK on the shared one would also affect other processes.
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  sink->own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (sink->own_) {
    sink->fd_ = sink->own_.get();
  } else {
    sink->may_block_ = true;  // sockets cannot be opened, nor can some files of other users
  }
  return sink;
}

Result<std::shared_ptr<Sink>> Sink::to_file(const std::string& path, std::string whose,
                                            bool is_new) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (is_new ? O_TRUNC : 0);
  UniqueDescriptor file(::open(path.c_str(), flags, 0644));
  if (!file) {
    return KOLO_ERROR(kInvalidArgument, "cannot write {}: {}", path,
                      std::generic_category().message(errno));
  }
  std::shared_ptr<Sink> sink(new Sink(path, std::move(whose)));
  sink->fd_ = file.get();
  sink->own_ = std::move(file);
  return sink;
}

void Sink::add(std::string_view bytes) {
  if (error_ == 0) pending_ += bytes;
}

ssize_t Sink::write_some() {
  if (is_socket_) return ::send(fd_, pending_.data(), pending_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (!may_block_) return ::write(fd_, pending_.data(), pending_.size());
  pollfd room = {fd_, POLLOUT, 0};
  if (::poll(&room, 1, 0) <= 0) {
    errno = EAGAIN;
    return -1;
  }
  // A pipe with any room takes PIPE_BUF bytes without blocking.
  return ::write(fd_, pending_.data(), std::min<std::size_t>(pending_.size(), PIPE_BUF));
}

void Sink::flush() {
  while (!pending_.empty()) {
    const ssize_t written = write_some();
    if (written > 0) {
      pending_.erase(0, static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      return;
    } else if (written < 0 && errno != EINTR) {
      error_ = errno;
      pending_.clear();
    }
  }
}

bool are_same(int one, int other) {
  struct stat first = {};
  struct stat second = {};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace kolo::run
