#include "bindings/torch/gradients/step_count.h"

#include "bindings/core/joins.h"

namespace kolo {

StepCount::StepCount(const ProcessSet& set) : set_(set), joins_(joins_ended(set)) {}

void StepCount::begin() {
  renew();
  ++number_;
  ended_ = false;
}

void StepCount::go_on() {
  renew();
  if (ended_) begin();
}

torch::Tensor StepCount::await(TensorWork& work) {
  try {
    return work.wait();
  } catch (const OutOfStep& error) {
    catch_up(error.latest());
    throw;
  }
}

void StepCount::renew() {
  const std::uint64_t joins = joins_ended(set_);
  if (joins == joins_) return;
  joins_ = joins;
  number_ = 0;
  ended_ = true;
}

}  // namespace kolo
