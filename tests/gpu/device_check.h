// The parts of device_check: what only a GPU can show about runtime/device/cuda. One thread.
#pragma once

#include "runtime/device/accelerator.h"

#include <fmt/format.h>

#include <map>
#include <string>

namespace kolo::gpu {

/// The exit status of who could check nothing, and has said why.
inline constexpr int kNothingRun = 77;

/// What was looked at, and how much of it was wrong.
class Verdicts {
 public:
  void expect(bool is_right, const std::string& what) {
    ++checked_;
    if (is_right) return;
    ++failed_;
    fmt::print("FAILED: {}\n", what);
  }
  /// False, and told, if the call failed.
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
/// That other process: imports memory of `key`, in hexadecimal, and changes it. An exit status.
int import_as_peer(Accelerator& accelerator, const std::string& key);

struct Rates {
  double copy_bytes_per_second = 0;      ///< read and written, of the device's own copies
  std::map<std::string, double> shares;  ///< of that rate, by what was measured
  double launch_seconds = 0;             ///< of a small combination, one after the other
};
Rates measure(Accelerator& accelerator, Verdicts& verdicts);

}  // namespace kolo::gpu
