#include "bindings/torch/gradients/ddp_forwards.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

namespace kolo {

bool ForwardWindow::begin(bool training) {
  const bool is_together = !local_ && training;
  owes_pass_ |= is_together;
  next_ = local_ && !owes_pass_ ? Next::kLocal : Next::kCommunicates;
  now_ = !local_ && !training ? Now::kEval : Now::kOther;
  any_in_eval_ |= now_ == Now::kEval;
  return is_together;
}

void ForwardWindow::expect_pass() {
  now_ = Now::kCounted;
  forwards_.emplace_back();
}

bool ForwardWindow::end(const std::vector<torch::Tensor>& outputs, bool complete) {
  const Now now = std::exchange(now_, Now::kOther);
  if (now == Now::kCounted) {
    Forward& forward = forwards_.back();
    for (const torch::Tensor& tensor : outputs)
      if (tensor.defined() && tensor.grad_fn())
        forward.outputs.push_back(weak_of(tensor.grad_fn()));
    const bool is_known = complete && !forward.outputs.empty();
    forward.result = is_known ? Forward::Result::kKnown : Forward::Result::kUnknown;
  }
  if (wants_leaves()) {
    found_ = complete && found_ != Found::kPart ? Found::kAll : Found::kPart;
    add_leaves(outputs);
  }
  return now == Now::kEval;
}

void ForwardWindow::add_leaves(const std::vector<torch::Tensor>& outputs) {
  std::vector<const torch::autograd::Node*> open;
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const torch::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    if (output.is_leaf()) leaves_.insert(output.unsafeGetTensorImpl());
    visit(output.grad_fn().get());
  }
  while (!open.empty()) {
    const torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      leaves_.insert(leaf->variable.unsafeGetTensorImpl());
    }
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
}

void ForwardWindow::end_local(bool is_inner) {
  local_graph_ = -1;
  // The rest of an outer backward is local, too.
  if (!is_inner && next_ == Next::kLocal) next_ = Next::kLocalIsOver;
}

std::uint64_t ForwardWindow::dropped() const {
  using Result = Forward::Result;
  return static_cast<std::uint64_t>(
      std::count_if(forwards_.begin(), forwards_.end(), [](const Forward& forward) {
        return forward.result == Result::kNone ||
               (forward.result == Result::kKnown &&
                std::all_of(forward.outputs.begin(), forward.outputs.end(),
                            [](const auto& output) { return output.expired(); }));
      }));
}

bool ForwardWindow::is_unused(const torch::Tensor& parameter) const {
  return found_ == Found::kAll && !leaves_.contains(parameter.unsafeGetTensorImpl());
}

void ForwardWindow::clear() {
  forwards_.clear();
  owes_pass_ = false;
  any_in_eval_ = false;
  found_ = Found::kNone;
  leaves_.clear();
}

}  // namespace kolo
