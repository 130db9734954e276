// Program: a rank's schedule in the form that the simulator plays. Ranks whose schedules differ in
// their peers alone share one program, so thousands of ranks fit into memory.
#pragma once

#include "runtime/collectives/schedule.h"
#include "tools/simulate/machine.h"

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace kolo::simulate {

/// Bytes of an element: of an input or result, and of a partial sum.
struct Widths {
  std::uint64_t element = 4;
  std::uint64_t partial = 4;
};

struct Program {
  struct Op {
    StepKind kind = StepKind::kCopy;
    std::uint32_t peer = 0;  ///< index into the rank's peers
    std::uint32_t tag = 0;
    std::uint32_t waits_for = 0;  ///< dependencies, and the arrival of a message
    std::uint64_t bytes = 0;      ///< length of a message; all that a sum or copy reads and writes
    std::uint64_t far_bytes = 0;  ///< those of them in the memory of other NUMA nodes
    friend bool operator==(const Op&, const Op&) = default;
  };
  /// A receive or wait.
  struct Arrival {
    std::uint32_t tag = 0;
    StepId step = 0;
    friend bool operator==(const Arrival&, const Arrival&) = default;
  };

  std::vector<Op> ops;
  std::vector<std::uint32_t> successor_begin;  ///< by step, plus one: ranges in successors
  std::vector<StepId> successors;
  std::vector<std::uint32_t> arrival_begin;  ///< by peer, plus one: ranges in arrivals
  std::vector<Arrival> arrivals;             ///< by peer, then by tag

  std::span<const StepId> after(StepId step) const {
    return std::span(successors)
        .subspan(successor_begin[step], successor_begin[step + 1] - successor_begin[step]);
  }
  friend bool operator==(const Program&, const Program&) = default;
};

struct RankProgram {
  std::shared_ptr<const Program> program;
  std::vector<int> peers;  ///< in the order in which the schedule names them
};

/// A copy from kInput to the same place in kOutput moves nothing: gradients are summed in place.
RankProgram compile(const Schedule& schedule, Widths widths, const Machine& machine);

/// Keeps one of several equal programs.
class ProgramPool {
 public:
  void share(RankProgram& rank);

 private:
  std::unordered_multimap<std::uint64_t, std::shared_ptr<const Program>> programs_;
};

}  // namespace kolo::simulate
