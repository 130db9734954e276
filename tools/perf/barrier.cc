#include "tools/perf/barrier.h"

#include "tools/perf/measure.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <utility>

namespace kolo::perf {

struct Barrier::Line {
  alignas(128) std::atomic<std::uint32_t> round;
};

Result<std::unique_ptr<Barrier>> Barrier::open() {
  if (local_size() < size()) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} of the {} ranks are on rank {}'s host, and the barrier is memory of "
                    "one host; start all ranks on one",
                    local_size(), size(), rank())};
  }
  auto memory = SharedLines::open(0, true, static_cast<std::size_t>(size()) * sizeof(Line));
  if (memory == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "the ranks cannot open each other's memory (/proc/PID/fd); start them in one "
                 "container and as one user"};
  }
  return std::unique_ptr<Barrier>(new Barrier(std::move(memory), ranks_have_cores() ? 10000 : 1));
}

void Barrier::wait() {
  auto* const lines = static_cast<Line*>(memory_->data());
  ++round_;
  lines[rank()].round.store(round_, std::memory_order_release);
  for (int other = 0; other < size(); ++other) {
    // A rank can be one round ahead.
    for (int spins = 1; lines[other].round.load(std::memory_order_acquire) - round_ > 1; ++spins) {
      if (spins % spins_ != 0) continue;
      sched_yield();
      // kolo names the rank that has ended.
      if (spins % 10000 == 0 && memory_->has_partner_ended()) align();
    }
  }
}

}  // namespace kolo::perf
