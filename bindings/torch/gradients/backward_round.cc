#include "bindings/torch/gradients/backward_round.h"

#include <algorithm>
#include <utility>

namespace kolo {

void BackwardRound::follow() {
  auto backward = Backward::current();
  if (std::find(backwards.begin(), backwards.end(), backward) != backwards.end()) return;
  backward->enter(weak_from_this());
  backwards.push_back(std::move(backward));
  queue(&BackwardRound::end_backward);
}

void BackwardRound::follow_outer() {
  call_in_outer_backward([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex);
    self->follow();
  });
}

void BackwardRound::leave(const std::shared_ptr<Backward>& one) {
  std::erase_if(backwards, [&](const auto& backward) {
    if (one != nullptr && backward != one) return false;
    backward->leave(this);
    return true;
  });
}

}  // namespace kolo
