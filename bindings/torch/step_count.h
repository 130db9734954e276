// StepCount: the step of training that an object which reduces gradients is at, counted from 1, so
// that gradients of different steps never meet. A rank that leaves a batch out after zero_grad() is
// a step ahead of the others: the next operations fail on all ranks, which then count on from the
// highest step of any, so that the following ones meet. The training loop's thread, and autograd's
// under the object's mutex. Private to bindings/torch.
#pragma once

#include "bindings/core/step_scope.h"

#include <kolo/kolo.h>
#include <kolo/torch/tensor_work.h>

#include <algorithm>
#include <cstdint>

namespace kolo {

class StepCount {
 public:
  StepCount() = default;
  explicit StepCount(const ProcessSet& set);

  /// What this thread submits until its end is of this step.
  [[nodiscard]] StepScope scope() const { return StepScope(number_); }
  /// The next one begins, whatever has become of this one: zero_grad().
  void begin();
  /// Something of a step happens: the next one begins if this one has ended.
  void go_on();
  /// All of this one is done: step().
  void end() { ended_ = true; }
  /// So many have been left out on this rank.
  void skip(std::uint64_t steps) { number_ += steps; }
  /// Goes on from the highest step of any rank, where they were at different ones.
  void catch_up(std::uint64_t latest) { number_ = std::max(number_, latest); }
  /// Waits, as TensorWork::wait(), and does so.
  torch::Tensor await(TensorWork& work);

 private:
  /// After a join, ranks that had joined have made fewer steps: all begin anew.
  void renew();

  ProcessSet set_;
  std::uint64_t joins_ = 0;  ///< that had ended when number_ was 0
  std::uint64_t number_ = 0;
  bool ended_ = true;
};

}  // namespace kolo
