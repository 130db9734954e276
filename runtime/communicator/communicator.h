// Communicator: an ordered group of ranks with its tag space, its place in the topology and its
// sticky first failure, which all communicators of a rank share. Immutable but for the Abort;
// shared by reference.
#pragma once

#include "runtime/base/abort.h"
#include "runtime/topology/world.h"
#include "transport/tag.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// The ways in: negotiated by name, in program order, or offered by one rank to another. Each
/// numbers its own operations.
enum class Door : std::uint8_t { kNamed = 0, kOrdered = 1, kPointToPoint = 2 };
inline constexpr int kDoorCount = 3;

class Communicator {
 public:
  /// All ranks of the world.
  Communicator(std::uint32_t id, World world)
      : id_(id),
        world_(std::make_shared<const World>(std::move(world))),
        ranks_(static_cast<std::size_t>(world_->size())),
        rank_(world_->rank()) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  /// Some ranks of `all`, ascending; this rank may be none of them. A failure is
  /// a failure of all.
  Communicator(std::uint32_t id, const Communicator& all, std::vector<int> ranks)
      : id_(id), world_(all.world_), ranks_(std::move(ranks)), abort_(all.abort_) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] == world_->rank()) rank_ = static_cast<int>(i);
    }
  }

  std::uint32_t id() const { return id_; }
  /// −1 if this rank is none of them.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const World& world() const { return *world_; }
  /// By rank of this communicator: the transport's rank, which is that of the world.
  const std::vector<int>& ranks() const { return ranks_; }
  /// The communicator's rank of a rank of the world; nothing if it has none.
  std::optional<int> index_of(int world_rank) const {
    const auto it = std::lower_bound(ranks_.begin(), ranks_.end(), world_rank);
    if (it == ranks_.end() || *it != world_rank) return std::nullopt;
    return static_cast<int>(it - ranks_.begin());
  }
  /// "" for the world, else " of process set 2": what follows a tensor's name in messages.
  std::string suffix() const {
    return id_ == 0 ? std::string() : " of process set " + std::to_string(id_);
  }
  /// Tag::communicator of a door's operations.
  std::uint32_t tag_space(Door door) const {
    return id_ * kDoorCount + static_cast<std::uint32_t>(door);
  }

  Abort& abort() { return *abort_; }
  const Abort& abort() const { return *abort_; }

 private:
  const std::uint32_t id_;
  const std::shared_ptr<const World> world_;
  std::vector<int> ranks_;
  int rank_ = -1;
  const std::shared_ptr<Abort> abort_ = std::make_shared<Abort>();
};

}  // namespace kolo
