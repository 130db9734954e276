#include "runtime/topology/core_matching.h"

#include "runtime/base/rounding.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kWordBits = 64;
using Bits = std::vector<std::uint64_t>;  ///< a set of cores, by index

/// The ranks that may run on the same cores.
struct CoreGroup {
  Bits cores;
  int ranks = 0;
};

void set_bit(Bits& bits, std::size_t index) {
  bits[index / kWordBits] |= std::uint64_t{1} << (index % kWordBits);
}

/// Takes one core of `wanted` out of `bits` and sets `index`; false if there is none.
bool take_one(Bits& bits, const Bits& wanted, std::size_t& index) {
  for (std::size_t word = 0; word < bits.size(); ++word) {
    const std::uint64_t both = bits[word] & wanted[word];
    if (both == 0) continue;
    bits[word] ^= both & -both;
    index = word * kWordBits + static_cast<std::size_t>(std::countr_zero(both));
    return true;
  }
  return false;
}

class Matching {
 public:
  Matching(const std::vector<CoreGroup>& groups, std::size_t cores)
      : groups_(groups), group_on_core_(cores), all_(ceil_div(cores, kWordBits)) {
    for (std::size_t core = 0; core < cores; ++core) set_bit(all_, core);
    free_ = all_;
  }

  /// Gives a rank of `group` a core, moving other ranks to other cores where that helps.
  bool assign(std::size_t group) {
    untried_ = all_;
    return augment(group);
  }

 private:
  /// One augmenting path. Each core is tried once for a rank.
  bool augment(std::size_t group) {
    const Bits& wanted = groups_[group].cores;
    std::size_t core = 0;
    bool placed = take_one(free_, wanted, core);
    while (!placed && take_one(untried_, wanted, core)) placed = augment(group_on_core_[core]);
    if (placed) group_on_core_[core] = group;
    return placed;
  }

  const std::vector<CoreGroup>& groups_;
  std::vector<std::size_t> group_on_core_;  ///< valid for cores that are not free
  Bits all_;
  Bits free_;
  Bits untried_;
};

}  // namespace

bool can_have_a_core_each(const std::vector<const std::vector<int>*>& cores_of_ranks) {
  std::map<std::vector<int>, int> ranks_by_cores;
  for (const std::vector<int>* const cores : cores_of_ranks) ++ranks_by_cores[*cores];
  std::unordered_map<int, std::size_t> indices;
  for (const auto& [cores, ranks] : ranks_by_cores) {
    for (const int core : cores) indices.try_emplace(core, indices.size());
  }
  if (cores_of_ranks.size() > indices.size()) return false;

  std::vector<CoreGroup> groups;
  for (const auto& [cores, ranks] : ranks_by_cores) {
    CoreGroup& group = groups.emplace_back(Bits(ceil_div(indices.size(), kWordBits)), ranks);
    for (const int core : cores) set_bit(group.cores, indices.at(core));
  }
  Matching matching(groups, indices.size());
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (int rank = 0; rank < groups[group].ranks; ++rank) {
      if (!matching.assign(group)) return false;
    }
  }
  return true;
}

}  // namespace kolo
