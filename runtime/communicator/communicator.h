// Communicator: an ordered group of ranks with its tag space, its place in the topology and its
// sticky first failure. Immutable but for the Abort; shared by reference.
#pragma once

#include "runtime/base/abort.h"
#include "runtime/topology/world.h"
#include "transport/tag.h"

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace kolo {

/// The two ways in: negotiated by name, or in program order. Each numbers its own operations.
enum class Door : std::uint8_t { kNamed = 0, kOrdered = 1 };
inline constexpr int kDoorCount = 2;

class Communicator {
 public:
  /// All ranks of the world.
  Communicator(std::uint32_t id, World world)
      : id_(id), world_(std::move(world)), ranks_(static_cast<std::size_t>(world_.size())) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  std::uint32_t id() const { return id_; }
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  const World& world() const { return world_; }
  /// By rank of this communicator: the transport's rank.
  const std::vector<int>& ranks() const { return ranks_; }
  /// Tag::communicator of a door's operations.
  std::uint32_t tag_space(Door door) const {
    return id_ * kDoorCount + static_cast<std::uint32_t>(door);
  }

  Abort& abort() { return abort_; }
  const Abort& abort() const { return abort_; }

 private:
  const std::uint32_t id_;
  const World world_;
  std::vector<int> ranks_;
  Abort abort_;
};

}  // namespace kolo
