// Communicator: an ordered group of ranks with its tag space, the world's topology, and the sticky
// first failure that all communicators of a rank share. Immutable except for the Abort; shared by
// reference.
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
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

/// How operations are submitted: negotiated by name, in program order, or offered by one rank to
/// another. Each mode numbers its own operations.
enum class SubmissionMode : std::uint8_t { kNegotiated = 0, kInOrder = 1, kPointToPoint = 2 };
inline constexpr int kSubmissionModeCount = 3;
/// "negotiated", "in-order", "message".
constexpr std::string_view to_string(SubmissionMode mode) {
  switch (mode) {
    case SubmissionMode::kNegotiated:
      return "negotiated";
    case SubmissionMode::kInOrder:
      return "in-order";
    case SubmissionMode::kPointToPoint:
      return "message";
  }
  return "";
}

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
  /// Some ranks of `all`, ascending; this rank need not be among them. Shares the Abort of `all`.
  Communicator(std::uint32_t id, const Communicator& all, std::vector<int> ranks)
      : id_(id), world_(all.world_), ranks_(std::move(ranks)), abort_(all.abort_) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] == world_->rank()) rank_ = static_cast<int>(i);
    }
  }

  std::uint32_t id() const { return id_; }
  /// −1 if this rank is not in the communicator.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const World& world() const { return *world_; }
  /// By rank of this communicator: the rank in the world, which the transport uses.
  const std::vector<int>& ranks() const { return ranks_; }
  /// This communicator's rank of a rank of the world; nothing if that rank is not in it.
  std::optional<int> index_of(int world_rank) const {
    const auto it = std::lower_bound(ranks_.begin(), ranks_.end(), world_rank);
    if (it == ranks_.end() || *it != world_rank) return std::nullopt;
    return static_cast<int>(it - ranks_.begin());
  }
  /// "" for the world, else " of process set 2": follows a tensor's name in messages.
  std::string suffix() const {
    return id_ == 0 ? std::string() : " of process set " + std::to_string(id_);
  }
  /// Tag::communicator for the operations of a mode.
  std::uint32_t tag_space(SubmissionMode mode) const {
    return id_ * kSubmissionModeCount + static_cast<std::uint32_t>(mode);
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
