// Coordinator: rank 0's half of the negotiation. It collects which rank is ready for which tensor
// and turns a tensor that all are ready for into a Response, the same for everybody, in the order
// in which they became complete. A rank that has joined counts as ready for everything. The members
// of a group are decided together, once every rank has announced the whole group. Pure bookkeeping,
// no I/O; token holder only.
//
// The n-th call under a name meets the n-th of every other rank, and fails on all of them or on
// none. So a rank that comes to a call which the others have given up for its sake is told that it
// has failed, and is not taken for ready for their next one. Calls that tell their step meet those
// of the same step alone.
#pragma once

#include "runtime/negotiation/wire.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace kolo {

/// The name under which ranks join.
inline constexpr const char* kJoinName = "kolo/join";

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;

  /// `world_ranks[i]` is what messages call the communicator's rank i; `where` follows a tensor's
  /// name in them (" of process set 2").
  explicit Coordinator(std::vector<int> world_ranks, std::string where = {});

  /// `rank` is ready. kInternal if it said so already. Where it is late, that is decided for it
  /// alone: kTimeout.
  Status ready(int rank, const Request& request, Clock::time_point now);
  /// Whether the others have given up a call of this name that `rank` has yet to come to.
  bool is_late(int rank, const std::string& name) const {
    if (late_.empty()) return false;
    const auto it = late_.find(name);
    return it != late_.end() && !it->second[static_cast<std::size_t>(rank)].empty();
  }

  bool has_decisions() const { return !decided_.empty(); }
  /// No tensor waits here and no rank has joined.
  bool idle() const { return pending_.empty() && joined_count_ == 0; }
  /// The responses that are due, in order. A tensor on which ranks disagree, or for which they are
  /// at different steps, fails with kMismatch,
  /// one that a rank complained of, or that a joined rank cannot take part in, with
  /// kInvalidArgument.
  std::vector<Response> take_decisions();

  /// Decides kTimeout for every tensor that some ranks have lacked for longer than `timeout`, and
  /// for the rest of its group; and for a join, once the ranks that have not joined have announced
  /// nothing for as long.
  void expire(Clock::time_point now, Clock::duration timeout);

  /// Ranks that wait for each other are told of sooner.
  static constexpr std::chrono::seconds kLateAndOther{10};
  /// A line for tensors that wait for the same ranks for longer than `age`, some of which has not
  /// been reported yet: the first one's name, who is ready, who is missing, and what those have
  /// submitted instead; then kLateAndOther will do. And one for a join, as expire() counts.
  std::vector<std::string> stalled(Clock::time_point now, Clock::duration age);

  std::size_t pending() const { return pending_.size(); }

 private:
  struct Variant {
    Signature signature;
    std::vector<int> ranks;
  };
  struct Pending {
    std::vector<Variant> variants;                    ///< more than one: the ranks disagree
    std::vector<bool> is_ready;                       ///< by rank
    SplitTable splits;                                ///< by rank
    std::map<int, std::string> complaints;            ///< by rank
    std::map<std::uint64_t, std::vector<int>> steps;  ///< whose they are, where they are told
    int ready_count = 0;
    int contributors = 0;
    Clock::time_point since;
    bool reported = false;
  };
  using PendingMap = std::unordered_map<std::string, Pending>;
  /// What has been announced of a group.
  struct Group {
    std::vector<std::string> members;  ///< in the order of their first announcement
    std::vector<int> announced;        ///< by rank
    std::vector<int> expected;         ///< by rank; 0: that rank has announced nothing
  };

  /// A call that others have given up.
  struct GivenUp {
    std::uint64_t step = 0;
    std::vector<int> by;
    Clock::time_point at;
  };
  /// By rank: those that it has yet to come to, in order.
  using Late = std::vector<std::deque<GivenUp>>;
  static bool nobody_is(const Late& late) {
    return std::all_of(late.begin(), late.end(), [](const auto& calls) { return calls.empty(); });
  }

  Status join(int rank);
  void end_join(std::optional<Error> error);
  std::string who_has_joined(Clock::time_point now) const;
  void note_member(int rank, const std::string& name, const Signature& signature);
  bool is_complete(const Pending& pending) const;
  bool is_complete(const Group& group) const;
  void settle(const std::string& name);
  void resolve_group(const std::string& name);
  void leave_groups(const std::string& name, const Pending& pending);
  std::optional<Error> what_is_wrong(const std::string& name, const Pending& pending) const;
  Error mismatch(const std::string& name, const Pending& pending) const;
  Error steps_differ(const std::string& name, const Pending& pending) const;
  void decide(const std::string& name, const Pending& pending, std::optional<Error> error);
  /// Decides it without the ranks that are missing, which are late from now on.
  void give_up(const std::string& name, const Pending& pending, Error error, Clock::time_point now);
  /// Whether the request is for a call that the others have given up; then that is decided.
  bool answer_late(int rank, const Request& request, Clock::time_point now);
  Error timed_out(const std::string& name, const Pending& pending, Clock::time_point now) const;

  std::string rank_list(const std::vector<int>& ranks) const;
  std::string tensor(const std::string& name) const;
  std::string tensor(const std::string& name, const Pending& pending) const;  ///< of which step
  std::string who_is_missing(const Pending& pending) const;
  /// What ranks that lack it have submitted until then, and ranks that have it lack; empty if
  /// nothing.
  std::string what_instead(const Pending& pending, Clock::time_point latest) const;
  std::vector<int> missing(const Pending& pending) const;  ///< joined ranks are not
  std::vector<int> not_ready(const Pending& pending) const;

  const std::vector<int> world_ranks_;
  const std::string where_;
  const int size_;
  PendingMap pending_;
  std::map<std::string, Group> groups_;
  std::unordered_map<std::string, Late> late_;
  std::vector<bool> joined_;
  int joined_count_ = 0;
  int last_joined_ = -1;
  Clock::time_point last_sign_;  ///< of the ranks that have not joined, or of a join
  bool join_reported_ = false;
  std::vector<Response> decided_;
};

}  // namespace kolo
