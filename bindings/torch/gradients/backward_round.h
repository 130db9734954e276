// BackwardRound: the rounds of a reducer whose gradients come from autograd. The optimizer's
// reducer, which sends tensor by tensor, and that of DistributedDataParallel, which sends buckets,
// are made on it.
//
// Hooks call follow(). At the end of each such backward end_backward() tells, and queues a callback
// that hears and one that settles. A backward may reach several reducers, on each rank in another
// order. This way all have told before one waits.
//
// Where a user's exception ends a backward, its callbacks do not run and the round keeps it. The
// reducer then ends the round when it is used again, and tells the other ranks that wait for it.
//
// Hooks run on autograd's threads, one for each device, under the mutex; all else on the training
// loop's thread. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradients/backward.h"
#include "bindings/torch/gradients/gradient_hooks.h"
#include "bindings/torch/gradients/round.h"

#include <memory>
#include <mutex>
#include <vector>

namespace kolo {

class BackwardRound : public GradientListener, public std::enable_shared_from_this<BackwardRound> {
 public:
  virtual ~BackwardRound() = default;
  BackwardRound(const BackwardRound&) = delete;
  BackwardRound& operator=(const BackwardRound&) = delete;

  virtual void end_backward() = 0;
  /// Calls end_backward() at the end of the current backward, once.
  void follow();
  /// For the end of an inner backward: follows the outer one, which may bring the other gradients.
  void follow_outer();
  /// Calls `next` at the end of the current backward.
  template <class Reducer>
  void queue(void (Reducer::*next)()) {
    queue_backward_callback([weak = weak_from_this(), next] {
      if (const auto self = weak.lock()) (static_cast<Reducer&>(*self).*next)();
    });
  }
  /// Forgets all backwards, or `one` of them.
  void leave(const std::shared_ptr<Backward>& one = nullptr);

  Round round;
  std::vector<std::shared_ptr<Backward>> backwards;  ///< followed and not left
  /// Guards what hooks use. Recursive, because what fails in a hook notes it under the mutex.
  std::recursive_mutex mutex;

 protected:
  explicit BackwardRound(const Round::Options& options) : round(options) {}
};

}  // namespace kolo
