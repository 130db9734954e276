// Runs schedules with the real executor, one thread per rank over a transport: for tests of the
// executor with the algorithms. Header-only.
#pragma once

#include "runtime/base/abort.h"
#include "runtime/base/check.h"
#include "runtime/base/deadline.h"
#include "runtime/execution/executor.h"
#include "transport/wait.h"

#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace kolo::test {

/// One rank with its executor, which runs one operation after the other.
class ScheduleRunner {
 public:
  ScheduleRunner(int rank, int size, Transport& transport)
      : rank_(rank),
        size_(size),
        transport_(transport),
        executor_(transport, host_device()),
        ranks_(static_cast<std::size_t>(size)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  Status run(std::shared_ptr<const Schedule> schedule, MemoryBinding binding) {
    const SpaceLayout of_scratch(binding, schedule->scratch_elements,
                                 schedule->partial_scratch_elements);
    const SpaceLayout of_staging(binding, schedule->staging_elements,
                                 schedule->partial_staging_elements);
    std::vector<std::byte> scratch(of_scratch.bytes), staging(of_staging.bytes);
    if (binding.scratch == nullptr) binding.scratch = scratch.data();
    if (binding.staging == nullptr) binding.staging = staging.data();
    binding.partial_scratch = scratch.data() + of_scratch.partials_begin;
    binding.partial_staging = staging.data() + of_staging.partials_begin;
    executor_.start(std::move(schedule), std::move(binding), 1, ++operation_, ranks_);
    const auto done = [&] {
      while (executor_.advance()) {
      }
      return executor_.done() || executor_.failed();
    };
    KOLO_TRY(progress_until(transport_, done, abort_, Deadline::after(std::chrono::seconds(60)),
                            executor_.dump_state()));
    // Transfers that no rank will answer must end before their memory goes.
    if (!executor_.done()) transport_.fail_all(executor_.status().error());
    KOLO_CHECK(executor_.done());
    return executor_.status();
  }

 private:
  int rank_;
  int size_;
  Transport& transport_;
  Abort abort_;
  Executor executor_;
  std::vector<int> ranks_;
  std::uint64_t operation_ = 0;
};

}  // namespace kolo::test
