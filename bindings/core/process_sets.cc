// Queries of process sets and hosts, and adding and removing sets. Any thread.
#include "bindings/core/global.h"
#include "bindings/core/hosts.h"
#include "runtime/base/check.h"

#include <span>

namespace kolo {

std::vector<int> ProcessSet::ranks() const {
  return value_or_throw(runtime_for("ProcessSet::ranks")->ranks_of(number_of(*this)));
}

bool ProcessSet::contains(int rank) const {
  const std::vector<int> all = ranks();
  return std::binary_search(all.begin(), all.end(), rank);
}

int ProcessSet::rank() const {
  const std::vector<int> all = ranks();
  const auto it = std::lower_bound(all.begin(), all.end(), kolo::rank());
  return it != all.end() && *it == kolo::rank() ? static_cast<int>(it - all.begin()) : -1;
}

int ProcessSet::size() const { return static_cast<int>(ranks().size()); }

ProcessSet add_process_set(const std::vector<int>& ranks) {
  const auto work = value_or_throw(runtime_for("add_process_set")->add_process_set(ranks));
  synchronize(*work);
  return ProcessSet(static_cast<std::uint32_t>(work->outcome().value));
}

void remove_process_set(const ProcessSet& set) {
  const auto runtime = runtime_for("remove_process_set");
  if (set.id() >= kFirstSplit) {
    raise(KOLO_ERROR(kInvalidArgument,
                     "kolo::remove_process_set(): a set of kolo::split_world() is another one on "
                     "other ranks, and stays until kolo::shutdown()"));
  }
  synchronize(*value_or_throw(runtime->remove_process_set(set.id())));
}

std::vector<ProcessSet> process_sets() {
  std::vector<ProcessSet> sets;
  for (const std::uint32_t id : runtime_for("process_sets")->process_sets()) sets.emplace_back(id);
  return sets;
}

std::vector<int> hosts_of_ranks() {
  const auto runtime = runtime_for("hosts_of_ranks");
  const std::span<const int> hosts = runtime->world().layout().host_of();
  return {hosts.begin(), hosts.end()};
}

}  // namespace kolo
