#include "bindings/torch/gradients/backward_callbacks.h"

#include "bindings/torch/tensors/failure.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace kolo {
namespace {

/// One backward, while the engine has callbacks for it.
struct Pass {
  int queued = 0;  ///< callbacks that are not yet over; under the mutex
  FirstFailure failure;
};

struct Passes {
  std::mutex mutex;
  std::map<int, std::weak_ptr<Pass>> by_task;  ///< by autograd's graph task
};

/// Never destroyed: autograd's threads may outlive static objects.
Passes& passes() {
  static Passes& all = *new Passes;
  return all;
}

std::shared_ptr<Pass> current_pass() {
  Passes& all = passes();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<Pass>& known = all.by_task[torch::autograd::get_current_graph_task_id()];
  if (auto pass = known.lock()) return pass;
  auto pass = std::make_shared<Pass>();
  known = pass;
  // Forget backwards that have failed; the engine has dropped their callbacks.
  std::erase_if(all.by_task, [](const auto& item) { return item.second.expired(); });
  return pass;
}

/// Returns whether this callback was the last one.
bool one_is_over(Pass& pass) {
  const std::lock_guard lock(passes().mutex);
  return --pass.queued == 0;
}

/// Runs `call` when its node begins.
class AtNode final : public torch::autograd::FunctionPreHook {
 public:
  explicit AtNode(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  const std::function<void()> call_;
};

}  // namespace

void call_before(torch::autograd::Node& node, std::function<void()> call) {
  node.add_pre_hook(std::make_unique<AtNode>(std::move(call)));
}

void queue_backward_callback(std::function<void()> call) {
  const std::shared_ptr<Pass> pass = current_pass();
  torch::autograd::Engine::get_default_engine().queue_callback([pass, call = std::move(call)] {
    pass->failure.attempt(call);
    if (one_is_over(*pass)) pass->failure.rethrow();
  });
  const std::lock_guard lock(passes().mutex);
  ++pass->queued;
}

void call_in_outer_backward(std::function<void()> call) {
  for (const auto& edge : torch::autograd::get_current_node()->next_edges())
    if (edge.is_valid()) call_before(*edge.function, call);
}

}  // namespace kolo
