// Join: join() plus a count of every rank's steps. The caller's thread.
#include <kolo/join.h>

#include "bindings/core/global.h"
#include "bindings/core/joins.h"
#include "runtime/base/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace kolo {

Join::Join(JoinOptions options) : options_(options), exceptions_(std::uncaught_exceptions()) {}

Join::~Join() noexcept(false) {
  if (!finished_ && std::uncaught_exceptions() == exceptions_) finish();
}

int Join::finish() {
  finished_ = true;
  const int last = join(options_.process_set);
  if (!options_.throw_on_early_termination) return last;

  std::vector<std::int64_t> steps;
  CollectiveOptions options;
  options.process_set = options_.process_set;
  allgather(
      &steps_, {1}, DataType::kInt64,
      [&](const Shape& shape) {
        steps.resize(static_cast<std::size_t>(shape.front()));
        return steps.data();
      },
      options);
  const std::int64_t most = *std::max_element(steps.begin(), steps.end());
  const std::vector<int> ranks = options_.process_set.ranks();
  std::vector<std::string> early;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < most) early.push_back(fmt::format("rank {} after {}", ranks[i], steps[i]));
  }
  if (!early.empty()) {
    raise(
        KOLO_ERROR(kInvalidArgument,
                   "kolo::Join: of {} steps, these ranks ended early: {}; give every rank as many "
                   "batches (kolo::DistributedSampler pads), or allow it",
                   most, fmt::join(early, ", ")));
  }
  return last;
}

std::uint64_t joins_ended(const ProcessSet& set) {
  try {
    return value_or_throw(runtime_for("joins_ended")->joins(number_of(set)));
  } catch (const Exception&) {
    return 0;
  }
}

}  // namespace kolo
