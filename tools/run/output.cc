#include "tools/run/output.h"

#include "runtime/base/check.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace kolo::run {

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      pollfd room = {fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (written < 0 && errno != EINTR) {
      return;
    }
  }
}

Result<Output> Output::to_file(const std::string& path) {
  UniqueDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) {
    return KOLO_ERROR(kInvalidArgument, "cannot write {}: {}", path,
                      std::generic_category().message(errno));
  }
  return Output(std::move(file));
}

void Output::write(std::string_view bytes) {
  if (file_ || tag_.empty()) return write_all(fd_, bytes);
  std::string whole;
  for (auto end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    whole += tag_ + line_;
    whole += bytes.substr(0, end + 1);
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
  line_ += bytes;
  write_all(fd_, whole);
}

void Output::finish() {
  if (!line_.empty()) write("\n");
}

}  // namespace kolo::run
