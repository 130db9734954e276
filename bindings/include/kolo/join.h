// Training on data that runs out at different times on the ranks, after torch's Join. Used by the
// training loop, by one thread.
#pragma once

#include <kolo/collectives.h>
#include <kolo/export.h>

#include <cstdint>

namespace kolo {

struct JoinOptions {
  /// If ranks end at different times, every rank fails once all have ended. The message names the
  /// ranks that ended early and the steps of all. Otherwise the ranks that ended early contribute
  /// zeros until then.
  bool throw_on_early_termination = false;
  ProcessSet process_set = {};
};

/// Wraps a loop whose steps all-reduce by sum or average, as DistributedOptimizer's steps do:
///
///   kolo::Join join;
///   for (auto& batch : *loader) train(batch), join.step();  // train() calls optimizer.step()
///   const int last = join.finish();
///   kolo::broadcast_parameters(*model, last);
///   kolo::broadcast_optimizer_state(optimizer, last);
///
/// - A rank whose loop has ended contributes zeros to the others' steps until all have ended, as
///   join() describes. Averages divide by the number of ranks that have not ended.
/// - Such a rank updates nothing in these steps. So the next epoch must begin with the weights,
///   buffers and optimizer state of the rank that ended last.
/// - With DistributedDataParallel, use it only with broadcast_buffers off or without buffers.
/// - Used by one thread.
class KOLO_API Join {
 public:
  explicit Join(JoinOptions options = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;
  /// Calls finish(), unless it was called already or an exception is unwinding. In the second case
  /// the others learn of this rank's end when it shuts down. Throws what finish() throws.
  ~Join() noexcept(false);

  /// Counts one step of this rank.
  void step() { ++steps_; }
  /// Collective. Waits until all ranks have ended. Returns the rank that ended last, which has seen
  /// all steps. Throws what join() throws, and kInvalidArgument with
  /// JoinOptions::throw_on_early_termination.
  int finish();

 private:
  const JoinOptions options_;
  const int exceptions_;  ///< exceptions that were unwinding at construction
  std::int64_t steps_ = 0;
  bool finished_ = false;
};

}  // namespace kolo
