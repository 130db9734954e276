// The base of kolo's functions that autograd sees. Private to bindings/torch.
#pragma once

#include "bindings/core/host_exceptions.h"

#include <torch/torch.h>

#include <utility>

namespace kolo {

/// A torch::autograd::Function whose backward, `gradients()` of the derived class, calls kolo.
template <class Derived>
struct CollectiveFunction : torch::autograd::Function<Derived> {
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outer) {
    return throwing_for_host([&] { return Derived::gradients(context, std::move(outer)); });
  }
};

}  // namespace kolo
