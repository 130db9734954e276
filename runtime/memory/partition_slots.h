// PartitionSlots: whether operations of a process set may use slots of its partition. Slots need
// memory on every rank of the set that shares its host with another rank of the set. Each rank
// tells the set's rank 0 whether it has the memory; rank 0 tells all ranks whether all have. No
// operation starts before that. If one rank lacks the memory, no rank uses slots. Group holds it;
// the cycle, which carries the messages, and Operation ask it. Progress token holder only, except
// open().
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/memory/host_window.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class PartitionSlots {
 public:
  using Clock = std::chrono::steady_clock;

  /// `partition`: of the window, or HostWindow::kNoPartition.
  PartitionSlots(const Communicator& communicator, HostWindow& window, int partition,
                 const Log& log);

  int partition() const { return partition_; }
  /// Call once the windows are open. Tries to get memory for the slots of a process set.
  void open();
  /// Whether this rank knows the result; stays true.
  bool settled() const { return settled_; }
  /// True if all ranks are on one host and have slots; equal on all ranks of the set. Precondition:
  /// settled().
  bool usable() const { return usable_ && is_on_one_host_; }
  /// Bytes of a slot, if the set spans several hosts: on every rank that shares its host with
  /// another. 0: no slots. Equal on all ranks of the set. Precondition: settled().
  std::size_t bytes_over_hosts() const;

  /// A message to send, returned once: from the set's rank 0 to all others, or from another rank to
  /// rank 0.
  std::optional<std::string> take_message() { return std::exchange(to_tell_, std::nullopt); }
  bool has_message() const { return to_tell_.has_value(); }
  /// Handles a message of the set's `rank`. kInternal if the message is malformed or unexpected.
  Status hear(int rank, std::string_view message);
  /// On rank 0: the set's `rank` has left.
  void rank_left(int rank);

  /// The world rank that left before the result was known; the set then never works.
  std::optional<int> left() const { return left_; }
  /// The world ranks that this rank still waits for.
  std::vector<int> silent() const;
  Clock::time_point opened_at() const { return opened_at_; }

 private:
  bool is_over_hosts() const;
  bool has_neighbour() const;
  void settle(std::optional<int> lacking);
  void judge();
  /// On rank 0: whether the set's `rank` has memory. False if the message is malformed or
  /// unexpected, as with take_verdict().
  bool take_word(std::size_t rank, char kind);
  /// On the other ranks: what rank 0 tells, of the world rank `whom`.
  bool take_verdict(char kind, std::optional<int> whom);

  const Communicator& communicator_;
  HostWindow& window_;
  const int partition_;
  const Log& log_;
  Clock::time_point opened_at_;
  std::string lack_;  ///< why this rank has no memory for the slots
  std::optional<std::string> to_tell_;
  /// On rank 0, by rank of the set: whether the rank has memory.
  std::vector<std::optional<bool>> words_;
  std::optional<int> left_;
  bool is_on_one_host_ = false;
  bool settled_ = true;
  bool usable_ = false;
};

}  // namespace kolo
