// Backwards through DistributedDataParallel that an exception has ended, perhaps on this rank
// alone, and backwards that it refuses. The other ranks learn of it before their gradients can meet
// gradients of a later pass.
#include "bindings/torch/gradients/ddp_state.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Reducers with a pass, by autograd's graph task. Several threads may train at the same time.
struct Passes {
  std::mutex mutex;
  std::vector<std::pair<int, std::weak_ptr<GradientListener>>> under_way;
};

Passes& passes() {
  static Passes all;
  return all;
}

}  // namespace

void DdpReducer::State::enter(int graph) {
  graphs.push_back(graph);
  const std::lock_guard lock(passes().mutex);
  passes().under_way.emplace_back(graph, weak_from_this());
}

void DdpReducer::State::leave() {
  graphs.clear();
  const std::lock_guard lock(passes().mutex);
  std::erase_if(passes().under_way, [this](const auto& pass) {
    const auto listener = pass.second.lock();
    return !listener || listener.get() == this;
  });
}

std::vector<std::shared_ptr<DdpReducer::State>> DdpReducer::State::of_this_backward() {
  std::vector<std::shared_ptr<State>> found;
  const std::lock_guard lock(passes().mutex);
  for (const auto& [graph, weak] : passes().under_way) {
    if (std::find(graphs.begin(), graphs.end(), graph) == graphs.end()) continue;
    const auto state = std::static_pointer_cast<State>(weak.lock());
    if (state && std::find(found.begin(), found.end(), state) == found.end())
      found.push_back(state);
  }
  return found;
}

void DdpReducer::State::end_interrupted() {
  const torch::NoGradGuard no_grad;
  FirstFailure known;  // ignored: the caller of that backward has already had its exception
  // As at the end of a backward, all reducers tell before one waits.
  const auto reducers = of_this_backward();
  for (const auto& state : reducers) known.attempt([&] { state->tell_interrupted(); });
  for (const auto& state : reducers) known.attempt([&] { state->take_results(); });
  for (const auto& state : reducers) {
    known.attempt([&] { state->settle(); });
    // Some gradients may have been cleared since, and then overwritten by operations under way.
    for (const Parameter& parameter : state->parameters) {
      torch::Tensor& gradient = parameter.tensor.mutable_grad();
      if (gradient.defined()) known.attempt([&] { gradient.zero_(); });
    }
  }
}

void DdpReducer::State::refuse_pass(const std::exception_ptr& why) {
  const torch::NoGradGuard no_grad;
  failure = why;
  begin_pass();
  tell_interrupted();
  take_results();
  settle();
  std::rethrow_exception(why);
}

void DdpReducer::State::tell_interrupted() {
  interrupted = true;
  // A whole pass without a search or a hook is like the other ranks' pass, so it needs no error.
  if (!is_whole() || searches() || hook) {
    attempt([] {
      raise(ErrorCode::kInvalidArgument,
            "DistributedDataParallel: a backward has ended by an exception before all gradients "
            "were there, so this step has no averages on any rank");
    });
  }
  mark_rest(true);
  if (!severed) attempt_together([&] { tell(); });
}

}  // namespace kolo
