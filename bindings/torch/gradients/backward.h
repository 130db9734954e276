// Backward: one backward of autograd's engine, as several reducers see it. It has the callbacks at
// its end, the values that its losses carry, and the rounds that have gradients in it.
//
// The engine skips callbacks after one has thrown. This file runs the reducers' callbacks even so,
// because other ranks may wait for what a later callback sends. Called by hooks on autograd's
// threads, and by such callbacks. Private to bindings/torch.
#pragma once

#include "bindings/torch/tensors/equal_values.h"
#include "bindings/torch/tensors/failure.h"

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

namespace kolo {

class BackwardRound;

/// One mutex guards the members of all of them. It lives until its callbacks are over, or longer if
/// a round keeps it.
class Backward {
 public:
  /// The backward that runs on this thread.
  static std::shared_ptr<Backward> current();
  /// Whether it runs inside a node of another one (activation checkpointing).
  static bool is_inner();

  void enter(const std::weak_ptr<BackwardRound>& round);
  void leave(const BackwardRound* round);
  std::vector<std::shared_ptr<BackwardRound>> rounds() const;
  /// What tell_with_backward() has told, in the order in which losses were reached.
  EqualValues values() const;

 private:
  friend void queue_backward_callback(std::function<void()> call);
  friend void tell_with_backward(const torch::Tensor& loss, EqualValues values);

  std::vector<std::weak_ptr<BackwardRound>> rounds_;
  EqualValues values_;
  int queued_ = 0;  ///< callbacks that are not yet over
  FirstFailure failure_;
};

/// Calls `call` at the end of the current backward, after callbacks that were queued before. The
/// first failure is thrown once all callbacks have run, including those that callbacks have queued.
void queue_backward_callback(std::function<void()> call);

/// For an inner backward that ends. Calls `call` as soon as the outer backward reaches a node
/// behind this one, so that what `call` queues belongs to the outer backward.
void call_in_outer_backward(std::function<void()> call);

/// Calls `call` whenever a backward is about to run this node, on the thread that runs it.
void call_before(torch::autograd::Node& node, std::function<void()> call);

/// A backward that reaches `loss` carries these values, which must be equal on all ranks, such as
/// the scale of the loss. Does nothing for a loss without a grad_fn.
void tell_with_backward(const torch::Tensor& loss, EqualValues values);

}  // namespace kolo
