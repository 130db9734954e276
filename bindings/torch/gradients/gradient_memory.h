// GradientMemory: memory for one parameter's gradient that the ranks of a host have mapped, so that
// an all-reduce need not copy the gradient. Used by ReducedGradient; one thread at a time. Private
// to bindings/torch.
#pragma once

#include <torch/torch.h>

namespace kolo {

class GradientMemory {
 public:
  /// Moves a gradient whose values no longer matter to this memory; it stays the same tensor.
  /// Returns false, and does nothing, while another owner holds the old memory or this one. Returns
  /// true, and does nothing, if there is no gain: the gradient is not contiguous, the ranks share
  /// no memory, or too little is left. Small gradients get a page at least: a fused buffer is
  /// summed in place only if all its gradients are in shared memory.
  bool give(torch::Tensor& gradient);
  /// Frees the memory as soon as no gradient uses it.
  void release() { memory_.reset(); }

 private:
  bool fits(const torch::Tensor& gradient) const;

  torch::Tensor memory_;  ///< as many elements as the gradient
  bool has_none_ = false;
};

}  // namespace kolo
