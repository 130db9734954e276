#include "tools/run/other_nodes.h"

#include "runtime/bootstrap/tcp_store.h"
#include "runtime/topology/host.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>

namespace kolo::run {
namespace {

// Time for node 0's kolo-run, which may start a little later.
constexpr std::chrono::seconds kPatience(1);

}  // namespace

void tell_of_failure(const Plan& plan, int rank, int exit_code) {
  const Member failed = {
      rank, plan.job.size,
      fmt::format("started by kolo-run on {}: exit status {}", this_host(), exit_code)};
  const Endpoint store = {plan.listen_host, static_cast<std::uint16_t>(plan.listen_port)};
  // This makes the store's rendezvous fail. Ranks that have met are not harmed, because they have
  // left it. Use a thread of its own, so that kolo-run waits neither for a store that does not
  // answer nor for a name lookup.
  const auto told = std::make_shared<std::promise<void>>();
  std::thread([=, secret = plan.job.secret, is_elastic = plan.job.is_elastic, node = plan.node,
               ranks = static_cast<int>(plan.places.size())] {
    const Deadline deadline = Deadline::after(kPatience);
    const auto joined = TcpStore::join(store, failed, secret, deadline);
    if (joined.ok() && is_elastic) {
      // The end of this connection is the end of the node.
      static_cast<void>((*joined)->join_as_node(node, ranks, deadline));
    } else if (joined.ok()) {
      (*joined)->fail(deadline);
    }
    told->set_value();
  }).detach();
  told->get_future().wait_for(kPatience);
}

}  // namespace kolo::run
