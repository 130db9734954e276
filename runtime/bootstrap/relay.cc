#include "runtime/bootstrap/relay.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/store_wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

namespace kolo {
namespace {

using std::chrono::seconds;

/// How long a rank waits for its children, and they for a connection to it. It listens before the
/// store tells them of it.
constexpr seconds kComes(30);
/// How long a connection may take to prove that it is a child.
constexpr seconds kProves(5);

Deadline within(seconds time, Deadline deadline) {
  return Deadline::after(deadline.remaining(time));
}

UniqueDescriptor accept_one(int listener, Deadline deadline) {
  if (!await(listener, POLLIN, deadline)) return {};
  return UniqueDescriptor(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Result<std::string> receive_from(const RelayPlace& place, Deadline deadline) {
  KOLO_ASSIGN(const UniqueDescriptor fd, connect_to(place.from, within(kComes, deadline)));
  KOLO_TRY(send_all(fd.get(), place.token, deadline));
  return receive_body(fd.get(), kReplyLimit, deadline);
}

}  // namespace

Result<Relay> Relay::open() {
  KOLO_ASSIGN(Listener listener, listen_at({}));
  return Relay(std::move(listener));
}

Result<std::string> Relay::fetch(const RelayPlace& place, Deadline deadline) {
  auto body = receive_from(place, deadline);
  if (body.ok()) return body;
  return Error{body.error().code,
               fmt::format("rank {} at {} does not pass on what the ranks have told: {}; see "
                           "whether it runs, and whether the hosts reach each other by TCP",
                           place.parent, to_text(place.from), body.error().message),
               body.error().file, body.error().line};
}

void Relay::pass_on(const RelayPlace& place, const std::string& body, Deadline deadline) const {
  if (place.children == 0) return;
  const std::string frame = to_frame_of(body);
  const Deadline comes = within(kComes, deadline);
  for (int served = 0; served < place.children && !comes.expired();) {
    const UniqueDescriptor fd = accept_one(listener_.fd.get(), comes);
    if (!fd) continue;
    const auto token = receive_exactly(fd.get(), place.token.size(), within(kProves, comes));
    if (!token.ok() || !equal_in_constant_time(*token, place.token)) continue;
    ++served;
    // If it breaks, the child tells the store.
    static_cast<void>(send_all(fd.get(), frame, deadline));
  }
}

}  // namespace kolo
