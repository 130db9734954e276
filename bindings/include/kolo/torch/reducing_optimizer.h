// What GradScaler and similar code need from an optimizer that reduces gradients over ranks itself.
// DistributedOptimizer and ShardedOptimizer implement it; callers find it by dynamic_cast from
// torch::optim::Optimizer. One thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

namespace kolo {

/// Interface of an optimizer that reduces its gradients over ranks:
///
///   if (auto* reducing = dynamic_cast<kolo::ReducingOptimizer*>(&optimizer)) {
///     reducing->synchronize();  // gradients are reduced now
///     // … change them in the same way on every rank …
///     reducing->skip_synchronize();
///   }
///   optimizer.step();
class KOLO_API ReducingOptimizer {
 public:
  virtual ~ReducingOptimizer() = default;

  /// Waits for every gradient. After it a caller may look at gradients or change them before
  /// step(), in the same way on every rank.
  virtual void synchronize() = 0;
  /// Call it after synchronize(): the next step() takes the gradients as they are.
  virtual void skip_synchronize() = 0;
  /// Whether every rank has all reduced gradients after synchronize(). False: each rank keeps a
  /// share, so ranks need a message to agree on what they find in their gradients.
  virtual bool same_gradients_on_every_rank() const { return true; }
  /// The ranks over which the optimizer reduces; "every rank" above means these. Default: all.
  virtual ProcessSet process_set() const { return {}; }

 protected:
  ReducingOptimizer() = default;
  ReducingOptimizer(const ReducingOptimizer&) = default;
  ReducingOptimizer(ReducingOptimizer&&) = default;
  ReducingOptimizer& operator=(const ReducingOptimizer&) = default;
  ReducingOptimizer& operator=(ReducingOptimizer&&) = default;
};

}  // namespace kolo
