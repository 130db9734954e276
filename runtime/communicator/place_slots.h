// PlaceSlots: whether operations of a process set may take slots of its place in the windows. They
// need memory on every rank of the set that shares its host with another one: each rank tells the
// set's rank 0 whether it has it, rank 0 tells all whether all have, and no operation begins
// before. What one rank cannot map, none maps. Held by Group, asked by the cycle, which carries the
// messages, and by Operation. Token holder only, but for open().
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/host_window.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class PlaceSlots {
 public:
  using Clock = std::chrono::steady_clock;

  /// `place`: of the window, or HostWindow::kNoPlace.
  PlaceSlots(const Communicator& communicator, HostWindow& window, int place, const Log& log);

  int place() const { return place_; }
  /// Once the windows are open: a process set's slots get memory, or not.
  void open();
  /// Whether this rank knows what all have; true from then on.
  bool settled() const { return settled_; }
  /// That all ranks are on one host and have slots. Alike on all of them. Precondition: settled().
  bool usable() const { return usable_ && is_on_one_host_; }
  /// Of a slot, on every rank that shares its host, where they are on several hosts; 0: there are
  /// none. Alike on all of them. Precondition: settled().
  std::size_t bytes_over_hosts() const;

  /// What is to be told: by the set's rank 0 to all others, by them to rank 0. Once.
  std::optional<std::string> take_message() { return std::exchange(to_tell_, std::nullopt); }
  bool has_message() const { return to_tell_.has_value(); }
  /// Of the set's `rank`. kInternal if it is malformed.
  Status hear(int rank, std::string_view message);
  /// On rank 0: the set's `rank` has left.
  void rank_left(int rank);

  /// The rank of the world that left before all was known; the set never works.
  std::optional<int> left() const { return left_; }
  /// The ranks of the world that this one waits for.
  std::vector<int> silent() const;
  Clock::time_point opened_at() const { return opened_at_; }

 private:
  bool is_over_hosts() const;
  bool has_neighbour() const;
  void settle(std::optional<int> lacking);
  void judge();

  const Communicator& communicator_;
  HostWindow& window_;
  const int place_;
  const Log& log_;
  Clock::time_point opened_at_;
  std::string lack_;  ///< why this rank has no memory for them
  std::optional<std::string> to_tell_;
  std::vector<std::optional<bool>> words_;  ///< on rank 0, by rank: whether it has memory
  std::optional<int> left_;
  bool is_on_one_host_ = false;
  bool settled_ = true;
  bool usable_ = false;
};

}  // namespace kolo
