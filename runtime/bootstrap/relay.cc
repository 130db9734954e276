#include "runtime/bootstrap/relay.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/store_wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace kolo {
namespace {

using std::chrono::seconds;

/// How long a rank tries to reach its parent.
constexpr seconds kConnects(5);
/// How long a connection may take to prove that it is a child's.
constexpr seconds kProves(5);
/// How long the first answer may take. All ranks have come by then, but it is long.
constexpr seconds kFirstAnswer(30);

Deadline within(seconds time, Deadline deadline) {
  return Deadline::after(deadline.remaining(time));
}

/// When a rank stops to wait for the first answer, and goes to the store: in time to get it there.
Deadline for_first_answer(Deadline deadline) {
  return Deadline::after(deadline.remaining(4 * kFirstAnswer) / 4);
}

/// The tree of which `rank` is the root.
RelayTree tree_of(int rank, int size) {
  RelayTree tree{0, size};
  while (tree.first != rank) {
    const auto below = trees_below(tree);
    tree = *std::find_if(below.begin(), below.end(), [&](const auto& t) { return rank < t.end; });
  }
  return tree;
}

}  // namespace

std::vector<RelayTree> trees_below(const RelayTree& tree) {
  std::vector<RelayTree> below;
  int first = tree.first + 1;
  for (int left = std::min(kRelayDegree, tree.end - first); left > 0; --left) {
    below.push_back({first, first + (tree.end - first) / left});
    first = below.back().end;
  }
  return below;
}

Result<Relay> Relay::open() {
  KOLO_ASSIGN(Listener listener, listen_at({}));
  return Relay(std::move(listener));
}

void Relay::link(const RelayPlace& place, int store, Deadline deadline) {
  store_ = store;
  is_linked_ = try_link(place, for_first_answer(deadline));
  if (!is_linked_) close();
}

bool Relay::try_link(const RelayPlace& place, Deadline deadline) {
  if (place.rank != 0) {
    auto parent = connect_once(place.parent, within(kConnects, deadline));
    if (!parent.ok()) return false;
    parent_ = *std::move(parent);
    const std::string hello = to_frame({place.token, std::to_string(place.rank)});
    if (!send_all(parent_.get(), hello, deadline).ok()) return false;
  }
  for (const RelayTree& tree : trees_below(tree_of(place.rank, place.size)))
    children_.push_back({tree});
  for (std::size_t linked = 0; linked < children_.size();) {
    if (!await_input(listener_.fd.get(), deadline)) return false;
    if (accept_child(place.token, deadline)) ++linked;
  }
  listener_.fd.reset();
  return true;
}

bool Relay::accept_child(const std::string& token, Deadline deadline) {
  UniqueDescriptor fd(
      ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return false;
  const auto body = receive_body(fd.get(), kHelloLimit, within(kProves, deadline));
  const auto hello = body.ok() ? parse_body(*body) : body.error();
  if (!hello.ok() || hello->size() != 2 || !equal_in_constant_time((*hello)[0], token))
    return false;
  const auto rank = parse_count((*hello)[1]);
  const auto child = std::find_if(children_.begin(), children_.end(),
                                  [&](const Child& c) { return c.tree.first == rank && !c.link; });
  if (child == children_.end()) return false;
  child->link = std::move(fd);
  return true;
}

std::optional<std::string> Relay::exchange(std::string_view phase, const std::string& value,
                                           Deadline deadline) {
  if (!is_linked_) return std::nullopt;
  const Deadline end = warns_after(deadline);
  auto answer = send_up(phase, value, end);
  if (answer) return send_down(parent_ ? std::nullopt : std::move(answer), end);
  close();
  return std::nullopt;
}

// Returns what it has sent, on rank 0 the answer.
std::optional<std::string> Relay::send_up(std::string_view phase, const std::string& value,
                                          Deadline deadline) {
  Gathered values = {value};
  for (const Child& child : children_) {
    const auto body = receive(child.link.get(), deadline);
    auto fields = body ? parse_body(*body) : Fields();
    // The store names the ranks that are missing here because they are in another exchange.
    if (!fields.ok() || fields->empty() || fields->front() != phase) return std::nullopt;
    fields->erase(fields->begin());
    auto below = from_runs(*fields, static_cast<std::size_t>(child.tree.end - child.tree.first));
    if (!below.ok()) return std::nullopt;
    std::move(below->begin(), below->end(), std::back_inserter(values));
  }
  Fields fields = to_runs(values);
  fields.emplace(fields.begin(), parent_ ? phase : kOkReply);
  std::string body = join_fields(fields);
  if (parent_ && !send_all(parent_.get(), to_frame_of(body), deadline).ok()) return std::nullopt;
  return body;
}

std::optional<std::string> Relay::pass_down(std::optional<std::string> body, Deadline deadline) {
  return send_down(std::move(body), for_first_answer(deadline));
}

std::optional<std::string> Relay::send_down(std::optional<std::string> body, Deadline deadline) {
  if (!body && is_linked_) body = receive(parent_.get(), deadline);
  if (!body) {
    close();
    return std::nullopt;
  }
  const std::string frame = to_frame_of(*body);
  bool is_passed_on = true;
  for (const Child& child : children_)
    is_passed_on = send_all(child.link.get(), frame, deadline).ok() && is_passed_on;
  if (!is_passed_on) close();
  return body;
}

std::optional<std::string> Relay::receive(int link, Deadline deadline) const {
  if (!await_input(link, deadline)) return std::nullopt;
  auto body = receive_body(link, kReplyLimit, deadline);
  if (!body.ok()) return std::nullopt;
  return *std::move(body);
}

bool Relay::await_input(int fd, Deadline deadline) const {
  std::vector<pollfd> entries = {{fd, POLLIN, 0}, {store_, POLLIN, 0}};
  if (parent_.get() != fd) entries.push_back({parent_.get(), POLLRDHUP, 0});
  for (const Child& child : children_)
    if (child.link.get() != fd) entries.push_back({child.link.get(), POLLRDHUP, 0});
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining(seconds(60)));
    if (::poll(entries.data(), entries.size(), static_cast<int>(left.count())) > 0)
      return entries.front().revents != 0;
    if (deadline.expired()) return false;
  }
}

void Relay::close() {
  is_linked_ = false;
  listener_.fd.reset();
  parent_.reset();
  children_.clear();
}

}  // namespace kolo
