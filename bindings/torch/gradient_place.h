// GradientPlace: memory for one parameter's gradient that the ranks of a host have mapped, so that
// an all-reduce of it copies nothing. Used by ReducedGradient, by one thread at a time. Private to
// bindings/torch.
#pragma once

#include <torch/torch.h>

namespace kolo {

class GradientPlace {
 public:
  /// Gives a gradient whose values do not matter any more this memory in place of its own; it stays
  /// the same tensor. False, and nothing is done, while somebody else holds its memory or this one.
  /// True, and nothing is done, where nothing is to be gained: a gradient that is not contiguous,
  /// ranks that share no memory, too little left of it. Small ones have theirs, too, a page at
  /// least: those that are fused are summed where they are only if all of them lie there.
  bool give(torch::Tensor& gradient);
  /// The memory goes as soon as no gradient has it.
  void release() { memory_.reset(); }

 private:
  bool fits(const torch::Tensor& gradient) const;

  torch::Tensor memory_;  ///< as long as the gradient
  bool has_none_ = false;
};

}  // namespace kolo
