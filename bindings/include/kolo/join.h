// Training on data that runs out at different times on the ranks, after torch's Join.
#pragma once

#include <kolo/collectives.h>
#include <kolo/export.h>

#include <cstdint>

namespace kolo {

struct JoinOptions {
  /// Ranks that end early make every rank fail, once all have ended, with one message that names
  /// them and everybody's steps; else they are helped out of their shorter epoch.
  bool throw_on_early_termination = false;
  ProcessSet process_set = {};
};

/// Around a loop whose steps all-reduce by sum or average (DistributedOptimizer's do):
///
///   kolo::Join join;
///   for (auto& batch : *loader) { ...; optimizer.step(); join.step(); }
///   const int last = join.finish();
///   kolo::broadcast_parameters(*model, last);
///   kolo::broadcast_optimizer_state(optimizer, last);
///
/// A rank whose loop ends takes part in the others' steps with zeros, as join() says, until all
/// have ended; averages divide by the ranks that have not. It updates nothing in these steps, so
/// the weights, buffers and optimizer state that the next epoch begins with are those of the last
/// rank. DistributedDataParallel takes it with broadcast_buffers off, or without buffers. One
/// thread.
class KOLO_API Join {
 public:
  explicit Join(JoinOptions options = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;
  /// finish(), unless that was called or an exception is on its way: then the others learn of this
  /// rank's end when it shuts down. Throws what finish() throws.
  ~Join() noexcept(false);

  /// Counts one step of this rank.
  void step() { ++steps_; }
  /// Collective: waits until all have ended; the rank that ended last, which has seen all steps.
  /// Throws what join() throws, and kInvalidArgument by JoinOptions::throw_on_early_termination.
  int finish();

 private:
  const JoinOptions options_;
  const int exceptions_;  ///< under way when this was made
  std::int64_t steps_ = 0;
  bool finished_ = false;
};

}  // namespace kolo
