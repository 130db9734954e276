// CycleContext: what the stages of all process sets of a rank share. Owned by Cycle; token holder
// only.
#pragma once

#include "runtime/cycle/cycle_trace.h"
#include "runtime/cycle/failures.h"
#include "runtime/negotiation/controller.h"
#include "runtime/operation/resources.h"
#include "runtime/operation/services.h"

#include <kolo/config.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace kolo {

class GroupRegistry;
class Peers;

struct CycleContext {
  GroupRegistry& groups;
  const RankServices& services;
  const LinkCosts& links;
  const Config& config;
  CycleTrace& trace;
  Failures& failures;
  Peers& peers;
  /// Adds or removes the process set that the world's ranks have agreed on.
  std::function<Result<std::int64_t>(const Signature& signature)> change_process_sets;
  // Memory of one stage, kept so that a steady step allocates nothing.
  std::vector<EntryPtr> drained = {};
  std::vector<Agreed> agreed = {};
  std::uint64_t lists_planned = 0;  ///< response lists of the world
  std::optional<Policy> known_policy = {};
  std::uint64_t versions = 0;  ///< the last Resources::version or Policy::version

  /// Precondition: the links are measured.
  const Policy& policy() {
    if (!known_policy) {
      known_policy = policy_of(links, config);
      known_policy->version = ++versions;
    }
    return *known_policy;
  }
};

}  // namespace kolo
