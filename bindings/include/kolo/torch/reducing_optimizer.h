// What GradScaler and the like need of an optimizer that reduces gradients over ranks itself,
// whatever optimizer it is made from. Implemented by DistributedOptimizer and ShardedOptimizer;
// found by dynamic_cast from torch::optim::Optimizer. One thread at a time.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

namespace kolo {

class KOLO_API ReducingOptimizer {
 public:
  virtual ~ReducingOptimizer() = default;

  /// Waits for every gradient, to look at them or change them before step(), alike on every rank.
  virtual void synchronize() = 0;
  /// After synchronize(): the next step() takes the gradients as they are.
  virtual void skip_synchronize() = 0;
  /// Whether every rank has all reduced gradients after synchronize(), and the same ones. Where not
  /// (each rank keeps its share), what ranks find in theirs needs a message.
  virtual bool same_gradients_on_every_rank() const { return true; }
  /// The ranks that it reduces over, and "every rank" above. Default: all.
  virtual ProcessSet process_set() const { return {}; }

 protected:
  ReducingOptimizer() = default;
  ReducingOptimizer(const ReducingOptimizer&) = default;
  ReducingOptimizer(ReducingOptimizer&&) = default;
  ReducingOptimizer& operator=(const ReducingOptimizer&) = default;
  ReducingOptimizer& operator=(ReducingOptimizer&&) = default;
};

}  // namespace kolo
