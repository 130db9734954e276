// Coordinator: rank 0's half of the negotiation. It collects which rank is ready for which tensor.
// When all ranks are ready for a tensor, it makes a Response that is the same for all ranks, in the
// order in which the tensors became complete. A joined rank counts as ready for everything. The
// members of a group are decided together, once every rank has announced the whole group. Pure
// bookkeeping, no I/O; progress token holder only.
//
// The n-th call under a name matches the n-th call of every other rank, and fails on all ranks or
// on none. If the other ranks have given up a call that a rank was missing from, this rank is late.
// When it announces the call, it is told that the call has failed, and it does not count as ready
// for their next one. Calls that state their step match only calls of the same step.
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

/// Ranks join under this name.
inline constexpr const char* kJoinName = "kolo/join";

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;

  /// Messages call the communicator's rank i `world_ranks[i]`. `where` follows a tensor's name in
  /// messages (" of process set 2").
  explicit Coordinator(std::vector<int> world_ranks, std::string where = {});

  /// `rank` announces a call. kInternal if it has announced it already. If the rank is late, the
  /// call fails with kTimeout for this rank alone.
  Status ready(int rank, const Request& request, Clock::time_point now);
  bool is_anyone_late() const { return !late_.empty(); }
  /// Whether the other ranks have given up a call of this name that `rank` has not announced yet.
  bool is_late(int rank, const std::string& name) const {
    if (late_.empty()) return false;
    const auto it = late_.find(name);
    return it != late_.end() && !it->second[static_cast<std::size_t>(rank)].empty();
  }

  bool has_decisions() const { return !decided_.empty(); }
  /// No tensor waits here and no rank has joined.
  bool idle() const { return pending_.empty() && joined_count_ == 0; }
  /// Takes the due responses, in order. A tensor fails with kMismatch if ranks disagree on it or
  /// are at different steps. It fails with kInvalidArgument if a rank complained of it, or if a
  /// joined rank cannot take part in it.
  std::vector<Response> take_decisions();

  /// Decides kTimeout for every tensor that some ranks have not announced within `timeout`, and for
  /// the rest of its group. A join times out after no rank has announced anything for `timeout`.
  void expire(Clock::time_point now, Clock::duration timeout);

  /// Ranks that wait for each other are reported after this time.
  static constexpr std::chrono::seconds kLateAndOther{10};
  /// Returns one line for all tensors that wait for the same ranks for longer than `age`, if some
  /// of them are not reported yet. The line names the first tensor, the ready ranks, the missing
  /// ranks, and what these have submitted instead. If there is something instead, kLateAndOther
  /// replaces a longer `age`. A join gets a line when no rank has announced anything for `age`.
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
    std::vector<Splits> splits;                       ///< by rank, for a row-wise kind
    std::map<int, std::string> complaints;            ///< by rank
    std::map<std::uint64_t, std::vector<int>> steps;  ///< ranks by the step that they state
    int ready_count = 0;
    int contributors = 0;
    Clock::time_point since;
    bool reported = false;

    /// Takes a rank's first announcement of the call.
    void add(int rank, const Request& request);
  };
  using PendingMap = std::unordered_map<std::string, Pending>;
  /// The announcements of a group.
  struct Group {
    std::vector<std::string> members;  ///< in the order of their first announcement
    std::vector<int> announced;        ///< by rank
    std::vector<int> expected;  ///< members that the rank's group has; 0: it has announced none
  };

  /// A call that other ranks have given up.
  struct GivenUp {
    std::uint64_t step = 0;
    std::vector<int> by;
    Clock::time_point at;
  };
  /// By rank: given-up calls that it has not announced yet, in order.
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
  /// Precondition: nothing is wrong with the call.
  SplitTable splits_of_all(const Pending& pending) const;
  /// Decides a call without the missing ranks, which are late from then on.
  void give_up(const std::string& name, const Pending& pending, Error error, Clock::time_point now);
  /// Gives up the other members of a group in which `failed` has failed.
  void give_up_group(const std::string& name, const std::string& failed, const Error& error,
                     Clock::time_point now);
  /// Whether `rank` is late for the request's call; if so, decides it for this rank.
  bool answer_late(int rank, const Request& request, Clock::time_point now);
  /// `behind`: the number of calls that the rank is late for.
  Error too_late(int rank, const std::string& name, const GivenUp& call, std::size_t behind,
                 Clock::time_point now) const;
  Error timed_out(const std::string& name, const Pending& pending, Clock::time_point now) const;

  std::string rank_list(const std::vector<int>& ranks) const;
  std::string tensor(const std::string& name) const;
  std::string tensor(const std::string& name,
                     const Pending& pending) const;  ///< also names the step
  std::string who_is_missing(const Pending& pending) const;
  /// A tensor announced by `latest` that missing ranks have submitted and ready ranks lack, as a
  /// phrase; empty if there is none.
  std::string what_instead(const Pending& pending, Clock::time_point latest) const;
  /// Ranks that have announced the one and not the other, without joined ranks.
  std::vector<int> only_in(const Pending& here, const Pending& there) const;
  std::vector<int> missing(const Pending& pending) const;  ///< without joined ranks and outsiders
  /// Whether the call is not the rank's to announce: is_by_its_ranks().
  static bool is_outsider(int rank, const Pending& pending);
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
  Clock::time_point last_sign_;  ///< last announcement of any rank
  bool join_reported_ = false;
  std::vector<Response> decided_;
};

}  // namespace kolo
