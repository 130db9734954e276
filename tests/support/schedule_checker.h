// The schedule checker: proves, for given sizes, that the schedules of all ranks together are
// right, without running a byte. Called by tests; pure, any thread.
//
// What it proves:
//  - structure: dependencies point backwards, operands lie within their spaces, which are as large
//    as the collective says, nothing writes the input, and no step reads and writes memory that
//    overlaps without being the same;
//  - messages: each send has exactly one receive with its peer, tag and length; no tag is used
//    twice between two ranks;
//  - progress: nobody waits for ever, even if a send ends only when its receive is posted;
//  - data: every element of every output is what the collective says. Where that is a sum, it has
//    every rank's contribution exactly once, scaled exactly once, and was summed in the same order
//    everywhere, hence equal bits; else it is the right element of the right rank's input;
//  - one rounding: partial sums (Operand::partial) travel and are read as what they were written
//    as, and what is none is one rank's input or a whole result, scaled when it is made;
//  - order: two steps that touch the same elements, one of them writing, are ordered;
//  - of a barrier: no rank is done before all have begun, by the messages alone;
//  - of Adasum: every combination is of two whole vectors.
#pragma once

#include "runtime/collectives/chooser.h"
#include "runtime/collectives/schedule.h"

#include <kolo/error.h>

#include <cstdint>
#include <span>
#include <vector>

namespace kolo::test {

struct CheckOptions {
  Collective collective = Collective::kAllreduce;
  int root = 0;  ///< of broadcast, gather and scatter; who sends from point to point
  int peer = 0;  ///< who receives from point to point
  std::vector<std::uint64_t> counts = {};  ///< as in ScheduleRequest
  /// The user passed the same memory for both; where they differ in size, the smaller one lies in
  /// its place in the larger. Not with kAlltoall.
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
