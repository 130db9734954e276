// CostSwitch: by it all ranks of the world take other costs of links from the same operation on, so
// that all choose the same algorithm for each. Rank 0 proposes; every rank answers how many ordered
// operations it has begun, and begins no more than kAhead further ones; then rank 0 says from which
// ordered operation, and from which list of responses, the costs count: none that any rank can have
// begun. Pure bookkeeping, no I/O; token holder only.
#pragma once

#include "runtime/collectives/algorithm.h"
#include "runtime/tuning/link_probe.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kolo {

class CostSwitch {
 public:
  /// Ordered operations that a rank may begin while ranks agree: more than fit into the time.
  static constexpr std::uint64_t kAhead = 1024;
  /// Switches of a job: costs are corrected, they do not go on for ever.
  static constexpr int kMost = 64;

  /// From where on an agreed policy counts.
  struct From {
    std::uint64_t ordered = 0;  ///< operation of the ordered door
    std::uint64_t list = 0;     ///< list of responses (Controller::Counters::agreements)
  };

  CostSwitch(AllreducePolicy policy, int size);

  /// Rank 0: whether another proposal may be made.
  bool can_propose() const { return !proposed_ && switches_ < kMost; }
  /// Rank 0: what to send to all others (kCosts). `ordered` is how many it has begun.
  std::string propose(const LinkCosts& costs, std::uint64_t ordered);
  /// Other ranks: a proposal; the answer to rank 0 (kCostsHeard). Nothing on malformed bytes.
  std::optional<std::string> hear(std::span<const std::byte> proposal, std::uint64_t ordered);
  /// Rank 0: an answer of `rank`. False on malformed bytes, or of a rank that was not asked.
  bool take_answer(int rank, std::span<const std::byte> answer);
  /// Rank 0: `rank` has left, with `ordered` operations done; what it had begun besides fails
  /// everywhere. If it has not answered, it is asked no more.
  void rank_left(int rank, std::uint64_t ordered);
  /// Rank 0: once all have answered, what to send to all others (kCostsFrom), and it counts here,
  /// too. `lists` is how many lists of responses rank 0 has sent.
  std::optional<std::string> settle(std::uint64_t lists);
  /// Other ranks: it is settled. False on malformed bytes, or without a proposal.
  bool take_settlement(std::span<const std::byte> settlement);
  /// Other ranks: rank 0 has left, and nothing comes of a proposal that it has not settled.
  void withdraw();

  /// Whether this rank may begin an ordered operation already.
  bool may_begin(std::uint64_t ordered) const { return ordered < bound_; }
  const AllreducePolicy& of_ordered(std::uint64_t sequence) const;
  const AllreducePolicy& of_list(std::uint64_t list) const;
  /// The newest costs on which all agreed; nothing if they are those of the start.
  std::optional<LinkCosts> newest() const;

 private:
  struct Version {
    From from;
    AllreducePolicy policy;
  };
  static constexpr std::uint64_t kNoBound = std::numeric_limits<std::uint64_t>::max();

  void begin(const LinkCosts& costs, std::uint64_t ordered);
  void count_answer(int rank, std::uint64_t ordered);
  bool waits_for(int rank) const;
  void apply(From from);

  std::deque<Version> versions_;  ///< ascending; references into it stay valid
  std::optional<LinkCosts> proposed_;
  std::uint64_t bound_ = kNoBound;
  std::uint64_t most_begun_ = 0;    ///< rank 0: of all that answered
  std::vector<bool> has_answered_;  ///< rank 0: by rank
  int switches_ = 0;
};

}  // namespace kolo
