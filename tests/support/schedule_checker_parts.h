// The parts of the schedule checker and their shared types. Included by its sources alone.
#pragma once

#include "tests/support/schedule_checker.h"

#include "runtime/base/check.h"

#include <string>
#include <utility>

namespace kolo::test {

struct GlobalStep {
  int rank = 0;
  StepId step = 0;
};

/// By rank and step: the step at the message's other end.
using Partners = std::vector<std::vector<GlobalStep>>;

/// What a collective requires of the ranks' memory.
struct Contract {
  static constexpr int kAllRanks = -1;

  /// Required contents of a stretch of an output: elements from `position` on of a rank's input, or
  /// of the sum of all inputs.
  struct Stretch {
    int from = kAllRanks;
    std::uint64_t position = 0;
    std::uint64_t length = 0;
  };
  struct Rank {
    std::uint64_t input_elements = 0;
    std::uint64_t output_elements = 0;
    // The offset of the input if both are the same memory.
    std::uint64_t input_begin = 0;
    std::uint64_t output_begin = 0;
    std::vector<Stretch> output;
  };

  CheckOptions options;
  std::vector<Rank> ranks;

  const Rank& of(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }
  /// Whether peers read a rank's input, or write its output, in place.
  bool is_direct(Role role, int rank) const {
    const std::vector<bool>& direct =
        role == Role::kSource ? options.direct_inputs : options.direct_outputs;
    return !direct.empty() && direct[static_cast<std::size_t>(rank)];
  }
};

/// If the collective has one count for all ranks, it is that of the root's schedule.
Contract contract_of(std::span<const Schedule> schedules, const CheckOptions& options);

/// Elements of one rank's memory; the space is not kPeer.
struct Location {
  int owner = 0;
  Space space = Space::kScratch;
  std::uint64_t begin = 0;
  std::uint64_t length = 0;

  std::uint64_t end() const { return begin + length; }
  bool overlaps(const Location& other) const {
    return owner == other.owner && space == other.space && begin < other.end() &&
           other.begin < end();
  }
  friend bool operator==(const Location&, const Location&) = default;
};

/// The location of an operand of `rank`'s schedule after all substitutions.
inline Location locate(const Operand& operand, Role role, int rank, const Contract& contract) {
  Location location{rank, operand.space, operand.offset, operand.length};
  if (operand.space == Space::kPeer) {
    location.owner = operand.rank;
    location.space = Space::kScratch;
    if (operand.direct != Operand::kNowhere && contract.is_direct(role, operand.rank)) {
      location.space = role == Role::kSource ? Space::kInput : Space::kOutput;
      location.begin = operand.direct;
    }
  }
  const bool is_users = location.space == Space::kInput || location.space == Space::kOutput;
  if (is_users && contract.options.input_is_output) {
    const Contract::Rank& memory = contract.of(location.owner);
    location.begin += location.space == Space::kInput ? memory.input_begin : memory.output_begin;
    location.space = Space::kOutput;
  }
  return location;
}

/// Whether a copy does nothing, because its rank's memory takes the place of its scratch.
inline bool is_void(const Schedule& schedule, const Step& step, const Contract& contract) {
  if (!step.stands_in) return false;
  const bool packs = schedule.sources(step).front().space == Space::kInput;
  return contract.is_direct(packs ? Role::kSource : Role::kDestination, schedule.rank);
}

inline bool is_message(StepKind kind) {
  return kind != StepKind::kReduce && kind != StepKind::kCopy;
}
inline bool is_outgoing(StepKind kind) {
  return kind == StepKind::kSend || kind == StepKind::kSignal;
}

/// "rank 2, step 17 (receive from rank 1, tag 5)".
std::string describe(const Schedule& schedule, StepId step);

Status check_structure(std::span<const Schedule> schedules, const Contract& contract);
Result<Partners> match_messages(std::span<const Schedule> schedules);
/// Returns an order in which all steps can finish.
Result<std::vector<GlobalStep>> simulate(std::span<const Schedule> schedules,
                                         const Partners& partners, const Contract& contract);
/// `finish_order` comes from simulate().
Status check_races(std::span<const Schedule> schedules, const Partners& partners,
                   std::span<const GlobalStep> finish_order, const Contract& contract);
Status check_barrier(std::span<const Schedule> schedules, const Partners& partners,
                     std::span<const GlobalStep> finish_order);

}  // namespace kolo::test
