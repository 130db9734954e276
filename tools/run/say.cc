#include "tools/run/say.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>

namespace kolo::run {
namespace {

constexpr int kPatience = 1000;  // milliseconds

iovec part(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

}  // namespace

void say(std::string_view line) noexcept {
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  if (::poll(&room, 1, kPatience) == 0) return;
  const std::array<iovec, 3> parts = {part("kolo-run: "), part(line), part("\n")};
  [[maybe_unused]] const auto written = ::writev(STDERR_FILENO, parts.data(), parts.size());
}

}  // namespace kolo::run
