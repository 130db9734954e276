// How one rank fails in the midst of a random training. The training loop's thread, but for what
// gradient hooks do, which is autograd's.
#pragma once

#include "tests/bindings/torch/stress/training.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace kolo::test {

struct FaultOptions {
  std::string fault;  ///< of `victim`; none: nobody fails
  int victim = 0;
  int step = 0;   ///< in which it does; -1: while the models are made
  int point = 0;  ///< before so many things of that step that may take long
  int delay = 0;  ///< µs later, on another thread, where it may be anywhere
  void add_to(CLI::App& app);
};

/// What a rank's own code throws, of which kolo knows nothing.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class FaultyRank {
 public:
  FaultyRank(const FaultOptions& options, bool is_victim)
      : options_(options), is_victim_(is_victim) {}

  /// Whether this rank ends, and says nothing more to the others.
  bool has_ended() const { return ends_; }
  void end() { ends_ = true; }
  /// Of which steps are made from now on.
  void begin(Training* training) { training_ = training; }
  /// Before something that may take long. Throws Fault, or does not return.
  void at_point();
  /// Where a batch is read; any thread.
  void in_data_set();
  /// Before the next step.
  void begin_step();
  /// Whether what the step has thrown is over with it, and what has caused it, too.
  bool mends() const;
  /// Behind it: what had no place in it comes now. Whether the rank goes on.
  bool end_step();

 private:
  void fail();
  void arm();
  void make_sparse(bool sparse) const;

  const FaultOptions options_;
  const bool is_victim_;
  Training* training_ = nullptr;
  int step_ = -1;
  int point_ = 0;
  bool has_failed_ = false;
  std::atomic<bool> is_unreadable_ = false;  ///< the data set
  bool ends_ = false;
};

}  // namespace kolo::test
