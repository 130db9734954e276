// Memory for a tensor of a random program: any layout within a larger block, whose other bytes must
// stay as they are. One thread at a time.
#pragma once

#include "tests/bindings/c10d/stress/call.h"
#include "tests/support/dice.h"

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>

namespace kolo::test {

class Place {
 public:
  /// Contiguous unless `any_layout`.
  Place(const Part& part, bool any_layout, Dice& dice);
  /// The tensor for c10d; sometimes it belongs to a leaf that requires a gradient.
  torch::Tensor& tensor() { return tensor_; }
  std::int64_t count() const { return tensor_.numel(); }
  /// Writes flat `values` in the order of the tensor's elements.
  void fill(const torch::Tensor& values);
  /// Empty, or how the elements differ from flat `values`.
  std::string wrong(const torch::Tensor& values) const;
  /// Empty, or what was written around the elements.
  std::string damage() const;

 private:
  using View = std::function<torch::Tensor(const torch::Tensor& block)>;
  static View draw_view(const Part& part, bool any_layout, Dice& dice, torch::ScalarType& type,
                        std::int64_t& elements);

  torch::Tensor block_;
  View view_;
  torch::Tensor tensor_;
};

}  // namespace kolo::test
