// The parts of the schedule checker and the words that they share. Included by its sources alone.
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

/// Elements of one rank's memory; the space is kInput, kOutput or kScratch.
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

/// Where an operand of `rank`'s schedule really lies.
inline Location locate(const Operand& operand, int rank, const CheckOptions& options) {
  Location location{rank, operand.space, operand.offset, operand.length};
  if (operand.space == Space::kPeer) {
    location.owner = operand.rank;
    location.space = Space::kScratch;
  } else if (operand.space == Space::kInput && options.input_is_output) {
    location.space = Space::kOutput;
  }
  return location;
}

inline bool is_message(StepKind kind) {
  return kind != StepKind::kReduce && kind != StepKind::kCopy;
}
inline bool is_outgoing(StepKind kind) {
  return kind == StepKind::kSend || kind == StepKind::kNotify;
}

/// "rank 2, step 17 (receive from rank 1, tag 5)".
std::string describe(const Schedule& schedule, StepId step);

Status check_structure(std::span<const Schedule> schedules, const CheckOptions& options);
Result<Partners> match_messages(std::span<const Schedule> schedules);
/// Returns an order in which all steps can finish.
Result<std::vector<GlobalStep>> simulate(std::span<const Schedule> schedules,
                                         const Partners& partners, const CheckOptions& options);
/// `finish_order` is simulate()'s.
Status check_races(std::span<const Schedule> schedules, const Partners& partners,
                   std::span<const GlobalStep> finish_order, const CheckOptions& options);

}  // namespace kolo::test
