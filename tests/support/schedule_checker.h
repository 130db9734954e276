// The schedule checker: proves, for given sizes, that the schedules of all ranks together are
// right, without running a byte. Called by tests; pure, any thread.
//
// What it proves:
//  - structure: dependencies point backwards, operands lie within their spaces, nothing writes the
//    input, and no step reads and writes memory that overlaps without being the same;
//  - messages: each send has exactly one receive with its peer, tag and length; no tag is used
//  twice
//    between two ranks;
//  - progress: nobody waits for ever, even if a send ends only when its receive is posted;
//  - data: every rank ends with every rank's contribution exactly once, scaled exactly once, each
//    element in its place, and summed in the same order everywhere, hence equal bits;
//  - order: two steps that touch the same elements, one of them writing, are ordered.
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
  int root = 0;                  ///< of a broadcast
  bool input_is_output = false;  ///< the user passed the same memory for both
};

/// What went over the wire, by sending rank.
struct Traffic {
  std::vector<std::uint64_t> elements;
  std::vector<std::uint64_t> messages;
};

/// `schedules[r]` is rank r's. The error (kInternal) names the first rank and step that are wrong.
Result<Traffic> check_schedules(std::span<const Schedule> schedules, const CheckOptions& options);

}  // namespace kolo::test
