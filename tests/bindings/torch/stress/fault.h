// How one rank fails in the middle of a random training. The training loop's thread, except for
// gradient hooks, which run on autograd's.
#pragma once

#include "tests/bindings/torch/stress/training.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace kolo::test {

struct FaultOptions {
  std::string fault;  ///< fault of rank `victim`; empty: no rank fails
  int victim = 0;
  int step = 0;   ///< step in which it fails; -1: while the models are made
  int point = 0;  ///< number of slow actions of this step before it fails
  int delay = 0;  ///< µs later, on another thread, at any point
  void add_to(CLI::App& app);
};

/// An exception of a rank's own code, which kolo does not know.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class FaultyRank {
 public:
  FaultyRank(const FaultOptions& options, bool is_victim)
      : options_(options), is_victim_(is_victim) {}

  /// Whether this rank ends without telling the others anything more.
  bool has_ended() const { return ends_; }
  void end() { ends_ = true; }
  /// Sets the training whose steps are made from now on.
  void begin(Training* training) { training_ = training; }
  /// Called before an action that may take long. Throws Fault, or does not return.
  void at_point();
  /// Called where a batch is read; any thread.
  void in_data_set();
  /// Called before the next step.
  void begin_step();
  /// Whether the step's exception, and its cause, have no effect on later steps.
  bool mends() const;
  /// Called after the step: faults that had no occasion in it come now. Returns whether the rank
  /// goes on.
  bool end_step();

 private:
  void fail();
  void arm();
  void later(std::function<void()> what) const;
  void make_sparse(bool sparse) const;

  const FaultOptions options_;
  const bool is_victim_;
  Training* training_ = nullptr;
  int step_ = -1;
  int point_ = 0;
  bool has_failed_ = false;
  bool was_late_ = false;
  std::atomic<bool> is_unreadable_ = false;  ///< the data set
  bool ends_ = false;
};

}  // namespace kolo::test
