#include "bindings/torch/gradients/ddp_graph.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace kolo {

void add_leaves(const std::vector<torch::Tensor>& outputs, Leaves& leaves) {
  std::vector<const torch::autograd::Node*> open;
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const torch::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    if (output.is_leaf()) leaves.insert(output.unsafeGetTensorImpl());
    visit(output.grad_fn().get());
  }
  while (!open.empty()) {
    const torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      leaves.insert(leaf->variable.unsafeGetTensorImpl());
    }
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
}

}  // namespace kolo
