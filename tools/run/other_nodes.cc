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

// For node 0's kolo-run, which may be started a little later.
constexpr std::chrono::seconds kPatience(1);

}  // namespace

void tell_of_failure(const Plan& plan, int rank, int exit_code) {
  const Member failed = {
      rank, plan.job.size,
      fmt::format("started by kolo-run on {}: exit status {}", this_host(), exit_code)};
  const Endpoint store = {plan.listen_host, static_cast<std::uint16_t>(plan.listen_port)};
  // Ranks that have met have left the meeting that fails by this, and are not harmed; where nobody
  // answers, nobody waits, nor for a name that is looked up.
  const auto told = std::make_shared<std::promise<void>>();
  std::thread([=, secret = plan.job.secret] {
    const Deadline deadline = Deadline::after(kPatience);
    const auto joined = TcpStore::join(store, failed, secret, deadline);
    if (joined.ok()) (*joined)->fail(deadline);
    told->set_value();
  }).detach();
  told->get_future().wait_for(kPatience);
}

}  // namespace kolo::run
