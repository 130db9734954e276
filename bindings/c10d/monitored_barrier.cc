// ProcessGroupKolo::monitoredBarrier(): over the group's store, so that it tells who is missing
// even where communication hangs. Rank 0 waits for the others' keys and then sets the verdict. The
// texts of the errors begin as those of ProcessGroupGloo, which programs and tests look for. User
// threads.
#include "bindings/c10d/arguments.h"
#include "bindings/c10d/work.h"

#include <kolo/c10d.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kPassed = "passed";

/// Keys of one barrier.
struct Keys {
  std::uint64_t number;
  std::string of(int rank) const {
    return fmt::format("kolo/monitored_barrier/{}/{}", number, rank);
  }
  std::string verdict() const { return fmt::format("kolo/monitored_barrier/{}/verdict", number); }
};

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

bool comes(c10d::Store& store, const std::string& key, milliseconds within) {
  if (within <= milliseconds(0)) return store.check({key});
  try {
    store.wait({key}, within);
    return true;
  } catch (const std::exception&) {  // a timeout; a store that is gone fails at the check, too
    return store.check({key});
  }
}

/// The call's timeout, else the group's, else c10d's.
milliseconds timeout_of(const c10d::BarrierOptions& options, milliseconds of_group) {
  if (options.timeout >= milliseconds(0)) return options.timeout;
  return of_group >= milliseconds(0) ? of_group : kBackendDefaultTimeout;
}

[[noreturn]] void fail_of_missing(const std::vector<int>& missing, milliseconds timeout) {
  if (timeout <= milliseconds(0)) {
    raise(ErrorCode::kTimeout,
          fmt::format("Rank 0 timed out in monitoredBarrier after {} ms, before rank {} came",
                      timeout.count(), missing.front()));
  }
  raise(ErrorCode::kTimeout,
        fmt::format("Rank{} {} failed to pass monitoredBarrier in {} ms; see what they do instead",
                    missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), timeout.count()));
}

/// The part of a rank but rank 0.
void tell_and_wait(c10d::Store& store, const Keys& keys, int rank, milliseconds timeout) {
  put(store, keys.of(rank), "here");
  const bool heard = comes(store, keys.verdict(), timeout);
  const auto bytes = heard ? store.get(keys.verdict()) : std::vector<std::uint8_t>();
  const std::string verdict(bytes.begin(), bytes.end());
  if (verdict == kPassed) return;
  raise(heard ? ErrorCode::kAborted : ErrorCode::kTimeout,
        fmt::format(
            "Rank {} successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0: {}",
            rank,
            heard ? verdict
                  : fmt::format("rank 0 has not told within {} ms who is there", timeout.count())));
}

void remove(c10d::Store& store, const Keys& keys, int size) {
  for (int rank = 1; rank < size; ++rank) store.deleteKey(keys.of(rank));
  store.deleteKey(keys.verdict());
}

}  // namespace

void ProcessGroupKolo::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  static_cast<void>(set());
  if (!store_) {
    raise(ErrorCode::kUnsupported,
          "c10d monitoredBarrier: it needs the store of a group that torch.distributed has made");
  }
  const milliseconds timeout = timeout_of(options, timeout_);
  const Keys keys{++monitored_barriers_};
  const Clock::time_point begun = Clock::now();
  const auto left = [&] {
    return timeout - std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
  };
  if (rank_ != 0) return tell_and_wait(*store_, keys, rank_, timeout);
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank)
    if (!comes(*store_, keys.of(rank), left())) missing.push_back(rank);
  put(*store_, keys.verdict(),
      missing.empty() ? kPassed : fmt::format("ranks {} were missing", fmt::join(missing, ", ")));
  if (missing.empty()) {
    // All have come here, so all have read the verdict before.
    if (keys.number > 1) remove(*store_, {keys.number - 1}, size_);
    return;
  }
  fail_of_missing(missing, timeout);
}

}  // namespace kolo
