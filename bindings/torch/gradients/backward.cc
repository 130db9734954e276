#include "bindings/torch/gradients/backward.h"

#include "bindings/core/host_exceptions.h"
#include "bindings/torch/gradients/backward_round.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <map>
#include <mutex>
#include <utility>

namespace kolo {
namespace {

struct Backwards {
  std::mutex mutex;
  std::map<int, std::weak_ptr<Backward>> by_task;  ///< by autograd's graph task
};

/// Never destroyed: autograd's threads may outlive static objects.
Backwards& backwards() {
  static Backwards& all = *new Backwards;
  return all;
}

/// Runs `call` when its node begins.
class AtNode final : public torch::autograd::FunctionPreHook {
 public:
  explicit AtNode(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    throwing_for_host(call_);
    return gradients;
  }

 private:
  const std::function<void()> call_;
};

}  // namespace

std::shared_ptr<Backward> Backward::current() {
  const std::lock_guard lock(backwards().mutex);
  auto& by_task = backwards().by_task;
  std::weak_ptr<Backward>& known = by_task[torch::autograd::get_current_graph_task_id()];
  if (auto backward = known.lock()) return backward;
  auto backward = std::make_shared<Backward>();
  known = backward;
  std::erase_if(by_task, [](const auto& item) { return item.second.expired(); });
  // The engine drops its callbacks, and so this one, at the end, also at one by an exception.
  torch::autograd::Engine::get_default_engine().queue_callback([backward] {});
  return backward;
}

bool Backward::is_inner() { return torch::autograd::get_current_node() != nullptr; }

void Backward::enter(const std::weak_ptr<BackwardRound>& round) {
  const std::lock_guard lock(backwards().mutex);
  rounds_.push_back(round);
}

void Backward::leave(const BackwardRound* round) {
  const std::lock_guard lock(backwards().mutex);
  std::erase_if(rounds_, [round](const auto& weak) {
    const auto other = weak.lock();
    return !other || other.get() == round;
  });
}

std::vector<std::shared_ptr<BackwardRound>> Backward::rounds() const {
  std::vector<std::shared_ptr<BackwardRound>> living;
  const std::lock_guard lock(backwards().mutex);
  for (const auto& weak : rounds_)
    if (auto round = weak.lock()) living.push_back(std::move(round));
  return living;
}

EqualValues Backward::values() const {
  const std::lock_guard lock(backwards().mutex);
  return values_;
}

void queue_backward_callback(std::function<void()> call) {
  const std::shared_ptr<Backward> backward = Backward::current();
  torch::autograd::Engine::get_default_engine().queue_callback([backward, call = std::move(call)] {
    backward->failure_.attempt(call);
    const auto is_last = [&] {
      const std::lock_guard lock(backwards().mutex);
      return --backward->queued_ == 0;
    };
    if (is_last()) throwing_for_host([&] { backward->failure_.rethrow(); });
  });
  const std::lock_guard lock(backwards().mutex);
  ++backward->queued_;
}

void call_in_outer_backward(std::function<void()> call) {
  for (const auto& edge : torch::autograd::get_current_node()->next_edges())
    if (edge.is_valid()) call_before(*edge.function, call);
}

void call_before(torch::autograd::Node& node, std::function<void()> call) {
  node.add_pre_hook(std::make_unique<AtNode>(std::move(call)));
}

void tell_with_backward(const torch::Tensor& loss, EqualValues values) {
  if (!loss.requires_grad() || loss.grad_fn() == nullptr) return;
  call_before(*loss.grad_fn(), [values = std::move(values)] {
    const std::shared_ptr<Backward> backward = Backward::current();
    const std::lock_guard lock(backwards().mutex);
    backward->values_.append(values);
  });
}

}  // namespace kolo
