// The schedule checker: proves, for given sizes, that the schedules of all ranks together are
// right, without running a byte. Called by tests; pure, any thread.
//
// What it proves:
//  - structure: dependencies point backwards, operands lie within their spaces, which are as large
//    as the collective says, nothing writes the input, and no step reads and writes memory that
//    overlaps without being the same;
//  - messages: each send has exactly one receive with its peer, tag and length; no tag is used
//    twice between two ranks;
//  - progress: no rank waits for ever, even if a send ends only when its receive is posted;
//  - data: every element of every output is what the collective says. For a sum, it has every
//    rank's contribution exactly once, scaled exactly once, and was summed in the same order on all
//    ranks, hence equal bits. Otherwise it is the right element of the right rank's input;
//  - one rounding: partial sums (Operand::partial) travel and are read in the type in which they
//    were written. Any other value is one rank's input or a whole result, scaled when it is made;
//  - order: two steps that touch the same elements, one of them writing, are ordered;
//  - for a barrier: no rank is done before all have begun, by the messages alone;
//  - for Adasum: every combination is of two whole vectors.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/planning/chooser.h"

#include <kolo/error.h>

#include <cstdint>
#include <span>
#include <vector>

namespace kolo::test {

struct CheckOptions {
  OperationKind kind = OperationKind::kAllreduce;
  bool is_adasum = false;  ///< an all-reduce by ReduceOp::kAdasum
  int root = 0;            ///< for broadcast, gather and scatter; the sender of kSend
  int peer = 0;            ///< the receiver of kSend
  std::vector<std::uint64_t> counts = {};  ///< as in ScheduleRequest
  /// The user passed the same memory for both. If they differ in size, the smaller buffer lies at
  /// its own part of the larger. Not with kAlltoall.
  bool input_is_output = false;
  /// By rank, or empty: whether its peers have its input or its output mapped (Operand::direct).
  std::vector<bool> direct_inputs = {};
  std::vector<bool> direct_outputs = {};
};

/// What went over the wire, by sending rank.
struct Traffic {
  std::vector<std::uint64_t> elements;
  std::vector<std::uint64_t> messages;
  std::vector<std::uint64_t> partials;  ///< those of the elements that are partial sums
};

/// `schedules[r]` is rank r's. The error (kInternal) names the first rank and step that are wrong.
Result<Traffic> check_schedules(std::span<const Schedule> schedules, const CheckOptions& options);

}  // namespace kolo::test
