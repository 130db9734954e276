#include "tools/run/other_nodes.h"

#include "runtime/bootstrap/tcp_store.h"
#include "runtime/topology/host.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

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
  // answers, nobody waits.
  const Deadline deadline = Deadline::after(kPatience);
  const auto joined = TcpStore::join(store, failed, plan.job.secret, deadline);
  if (joined.ok()) (*joined)->fail(deadline);
}

}  // namespace kolo::run
