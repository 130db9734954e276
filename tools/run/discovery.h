// Discovery: runs the program of --host-discovery about once a second, and keeps the last list of
// hosts that it has printed. Used by kolo-run's main thread, which also waits for its children.
//
// The program prints a host file (parse_hostfile()) and ends with 0. A run that fails, names no
// host or takes longer than kLimit is reported, and the last list stays.
#pragma once

#include "runtime/base/unique_handle.h"
#include "tools/run/placement.h"

#include <kolo/error.h>

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo::run {

class Discovery {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kInterval{1};  ///< from the end of a run to the next one
  static constexpr std::chrono::seconds kLimit{10};

  explicit Discovery(std::string program) : program_(std::move(program)) {}
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;
  ~Discovery();

  /// Starts a run if one is due, and ends one that takes too long. kInvalidArgument if the program
  /// cannot be run; it is tried again.
  Status keep(Clock::time_point now);
  /// When a child of this process has ended: whether it was this one's.
  bool take_end(pid_t pid, int status);

  /// The list of the last good run, once.
  std::optional<std::vector<Host>> take_hosts() { return std::exchange(found_, std::nullopt); }
  /// Why the last run failed, once for each reason; empty: nothing new.
  std::string take_failure();

 private:
  void take_result(int status);
  void fail(std::string reason);

  const std::string program_;
  pid_t pid_ = -1;  ///< the run that is under way
  bool is_late_ = false;
  UniqueDescriptor out_ = {};  ///< files in memory that take what the run prints
  UniqueDescriptor error_ = {};
  Clock::time_point due_ = {};  ///< next run, or end of this one
  std::optional<std::vector<Host>> found_ = {};
  std::string failure_ = {};
  std::string reported_ = {};
};

/// Runs `program` until its hosts have at least `slots`, for at most `limit`. Says what it waits
/// for. kTimeout, or kInvalidArgument if the program cannot be run.
Result<std::vector<Host>> await_hosts(const std::string& program, int slots,
                                      std::chrono::seconds limit);

}  // namespace kolo::run
