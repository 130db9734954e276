// Decisions that come out the same on all ranks. The caller's thread.
#include "bindings/core/submissions.h"

#include <cstdint>
#include <string>
#include <utility>

namespace kolo {
namespace {

struct Votes {
  std::int32_t yes = 0;
  int all = 0;  ///< number of ranks that have not joined
};

Votes votes_of(const std::string& call, bool mine, const ProcessSet& set) {
  Votes votes{mine ? 1 : 0};
  const auto runtime = runtime_for(call);
  AllreduceOptions options{.name = "kolo::" + call + "()"};
  options.process_set = set;
  auto submission = allreduce_submission(&votes.yes, &votes.yes, {1}, DataType::kInt32, options);
  submission.will_wait = true;
  const auto work = value_or_throw(runtime->submit(std::move(submission)));
  finish(*work, {});
  votes.all = work->participants();
  return votes;
}

}  // namespace

bool any(bool mine, const ProcessSet& set) { return votes_of("any", mine, set).yes > 0; }

bool all(bool mine, const ProcessSet& set) {
  const Votes votes = votes_of("all", mine, set);
  return votes.yes == votes.all;
}

}  // namespace kolo
