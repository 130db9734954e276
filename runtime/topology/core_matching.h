// Whether each rank of a machine can have its own core, given the cores that each is bound to.
// Pure; any thread.
#pragma once

#include <vector>

namespace kolo {

/// `cores_of_ranks[i]`: where the i-th rank may run, as RankInfo::cores; any order, any numbers.
/// Uses Kuhn's bipartite matching on bit sets, and treats ranks with the same cores as one: at most
/// ranks × cores steps of cores / 64 words each.
bool can_have_a_core_each(const std::vector<const std::vector<int>*>& cores_of_ranks);

}  // namespace kolo
