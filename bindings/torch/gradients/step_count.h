// StepCount: the current training step of an object that reduces gradients, counted from 1, so that
// gradients of different steps never meet. A rank that leaves a batch out after zero_grad() is a
// step ahead. The next operations then fail on all ranks, which continue from the highest step of
// any, so that later operations match. The training loop's thread, and autograd's under the
// object's mutex. Private to bindings/torch.
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

  /// Operations that this thread submits until the scope ends belong to this step.
  [[nodiscard]] StepScope scope() const { return StepScope(number_); }
  /// Begins the next step, even if the current one has not ended: zero_grad().
  void begin();
  /// An event of a step: begins the next step if the last one has ended.
  void go_on();
  /// Ends the current step: step().
  void end() { ended_ = true; }
  /// Counts steps that this rank has left out.
  void skip(std::uint64_t steps) { number_ += steps; }
  /// Continues from the highest step of any rank after ranks were at different steps.
  void catch_up(std::uint64_t latest) { number_ = std::max(number_, latest); }
  /// Waits like TensorWork::wait(), and catches up if ranks were out of step.
  torch::Tensor await(TensorWork& work);

 private:
  /// Restarts the count after a join, because ranks that had joined have made fewer steps.
  void renew();

  ProcessSet set_;
  std::uint64_t joins_ = 0;  ///< joins that had ended when number_ was 0
  std::uint64_t number_ = 0;
  bool ended_ = true;
};

}  // namespace kolo
