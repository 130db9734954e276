#include "tools/run/other_nodes.h"

#include "runtime/bootstrap/tcp_store.h"
#include "runtime/topology/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>
#include <utility>

namespace kolo::run {
namespace {

// Time for node 0's kolo-run, which may start a little later.
constexpr std::chrono::seconds kPatience(1);
// Time for the way there, if node 0's kolo-run may have ended already.
constexpr std::chrono::milliseconds kWay(200);

/// Runs `talk` with the store that `me` has joined; it is ready once that is done or the deadline
/// is over. Uses a thread of its own, so that kolo-run waits neither for a store that does not
/// answer nor for a name lookup.
template <class Talk>
std::future<void> tell_store(const Plan& plan, Member me, Deadline deadline, Talk talk) {
  std::promise<void> told;
  auto is_told = told.get_future();
  const Endpoint store = {plan.listen_host, static_cast<std::uint16_t>(plan.listen_port)};
  std::thread([=, told = std::move(told), secret = plan.job.secret]() mutable {
    const auto joined = TcpStore::join(store, std::move(me), secret, deadline);
    if (joined.ok()) talk(**joined);
    told.set_value();
  }).detach();
  return is_told;
}

}  // namespace

void tell_of_failure(const Plan& plan, int rank, int exit_code) {
  const Member failed = {
      rank, plan.job.size,
      fmt::format("started by kolo-run on {}: exit status {}", this_host(), exit_code)};
  const Deadline deadline = Deadline::after(kPatience);
  // This makes the store's rendezvous fail. Ranks that have met are not harmed, because they have
  // left it.
  const auto talk = [=, is_elastic = plan.job.is_elastic, node = plan.node,
                     ranks = static_cast<int>(plan.places.size())](TcpStore& store) {
    if (is_elastic) {
      // The end of this connection is the end of the node.
      static_cast<void>(store.join_as_node(node, ranks, deadline));
    } else {
      store.fail(deadline);
    }
  };
  tell_store(plan, failed, deadline, talk).wait_for(kPatience);
}

void GoneRanks::tell(int rank) {
  const Member launcher = {rank, 0, fmt::format("kolo-run on {}", this_host())};
  until_ = std::max(until_, Deadline::Clock::now() + kWay);
  told_.push_back(tell_store(plan_, launcher, Deadline::at(until_), [](TcpStore&) {}));
}

GoneRanks::~GoneRanks() {
  for (const auto& told : told_) told.wait_until(until_);
}

GoneRanks::GoneRanks(const Plan& plan) : plan_(plan), until_(Deadline::Clock::now() + kPatience) {}

}  // namespace kolo::run
