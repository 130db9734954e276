// ShardBackup: copies of an elastic job's sharded state in host memory. Each rank keeps its own
// part and that of one other rank, of the last two backups, so that a rank which is lost takes no
// part with it, and a backup that is interrupted leaves the one before. Used by elastic::State.
// Private to bindings/torch; the training loop's thread.
//
//   ShardBackup backup(modules, optimizers, sharded);
//   backup.make(generation, progress, {"what else ranks have alike"});
//   // … a rank is lost, and the others are in the next world …
//   const auto restored = backup.restore();  // modules and optimizers are as they were then
#pragma once

#include "bindings/torch/training/shard_copies.h"

#include <kolo/torch/sharded_parameters.h>
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// Gives the groups of `optimizer` the root's options, such as the learning rate. Collective.
void broadcast_options(torch::optim::Optimizer& optimizer, int root);

class ShardBackup {
 public:
  using Optimizers = std::vector<torch::optim::Optimizer*>;
  /// What the caller adds to a backup; ranks have it alike.
  using Rest = std::vector<std::string>;

  /// `replicated`: optimizers that have their whole state on each rank. `sharded`: those that are
  /// ShardedState.
  ShardBackup(std::vector<torch::nn::Module*> modules, Optimizers replicated, Optimizers sharded);

  /// Whether backups would take at most 2 % of the time if one were made now.
  bool is_due() const;
  /// Collective, between two steps. When it returns, all ranks have the backup.
  void make(std::int64_t generation, std::int64_t progress, Rest rest);

  /// As WorldMember's, for the sharded optimizers.
  void leave_world();
  void enter_world();

  struct Restored {
    BackupVersion version;
    Rest rest;
  };
  /// Collective, in another world, after enter_world(): gives all ranks the newest backup of which
  /// all parts exist. Nothing if a rank was lost before the first backup, and no state with it.
  /// Throws kPeerLost, with the part, if a part of each backup is gone.
  std::optional<Restored> restore();

 private:
  /// One backup on this rank. Its memory is used again.
  struct Slot {
    BackupVersion version;  ///< none while it is being made
    std::int64_t part = 0;
    std::int64_t kept_part = 0;
    torch::Tensor own;
    torch::Tensor kept;  ///< another rank's
    std::string replicated;
    Rest rest;
  };

  std::vector<torch::Tensor> replicated_tensors() const;
  std::string save_replicated() const;
  void load_replicated(const std::string& bytes) const;
  std::int64_t part_bytes() const;
  void save_part(torch::Tensor& to) const;
  void load_part(const torch::Tensor& from, const PartCopy& copy) const;
  /// Collective.
  std::vector<PartCopy> all_copies() const;
  Slot* slot_of(const BackupVersion& version);

  const std::vector<torch::nn::Module*> modules_;
  const Optimizers replicated_;
  const Optimizers sharded_;
  std::vector<ShardedState*> parts_;  ///< those of `sharded_`
  std::array<Slot, 2> slots_;
  std::size_t newest_ = 0;  ///< the slot that the next backup leaves
  std::chrono::steady_clock::duration cost_ = {};
  std::chrono::steady_clock::time_point ended_ = {};
  bool has_begun_ = false;  ///< all ranks of a world of this rank have had a backup
  bool has_lost_ = false;   ///< a state, before that
};

}  // namespace kolo
