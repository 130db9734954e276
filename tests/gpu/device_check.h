// The parts of device_check, which checks runtime/device/cuda on a real GPU. One thread.
#pragma once

#include "runtime/device/accelerator.h"

#include <fmt/format.h>

#include <map>
#include <string>

namespace kolo::gpu {

/// The exit status of a process that could check nothing and has printed why.
inline constexpr int kNothingRun = 77;

/// Counts the checks, and how many of them failed.
class Verdicts {
 public:
  void expect(bool is_right, const std::string& what) {
    ++checked_;
    if (is_right) return;
    ++failed_;
    fmt::print("FAILED: {}\n", what);
  }
  /// False, after printing the error, if the call failed.
  template <class Outcome>
  bool succeeds(const Outcome& outcome, const std::string& what) {
    expect(outcome.ok(), outcome.ok() ? what : what + ": " + outcome.error().message);
    return outcome.ok();
  }
  int checked() const { return checked_; }
  int failed() const { return failed_; }

 private:
  int checked_ = 0;
  int failed_ = 0;
};

/// Every operation, type and number of sources against the host's device, bit by bit.
void check_operations(Accelerator& accelerator, bool is_quick, Verdicts& verdicts);
/// Streams, events, places, pinned memory and, if not quick, memory that another process imports.
void check_memory(Accelerator& accelerator, bool is_quick, Verdicts& verdicts);
/// Runs in the other process: imports the memory of `key` (hexadecimal) and changes it. Returns an
/// exit status.
int import_as_peer(Accelerator& accelerator, const std::string& key);

struct Rates {
  double copy_bytes_per_second = 0;      ///< read and written, by the device's own copies
  std::map<std::string, double> shares;  ///< by measurement: share of that rate
  double launch_seconds = 0;             ///< for a small combination, one after the other
};
Rates measure(Accelerator& accelerator, Verdicts& verdicts);

}  // namespace kolo::gpu
