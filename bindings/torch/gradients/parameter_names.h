// Names of an optimizer's parameters, as given by a module's named_parameters(). Private to
// bindings/torch; the training loop's thread.
#pragma once

#include "bindings/core/step_scope.h"

#include <kolo/torch/broadcast_parameters.h>
#include <torch/torch.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

struct ListedParameter {
  std::string name;
  torch::Tensor tensor;
  std::size_t group;  ///< its index in the optimizer
};

/// The parameters of an optimizer's groups in their order, with their names. A weight that modules
/// share may have several names: the first counts. Throws kInvalidArgument if two parameters have
/// one name, or if one is not among the named ones. Messages begin with `optimizer`, a class name.
std::vector<ListedParameter> list_named(
    const std::string& optimizer, const std::vector<torch::optim::OptimizerParamGroup>& groups,
    const NamedTensors& named);

/// Throws kInvalidArgument: `optimizer` (a class name) lists parameter `first` again, as `second`,
/// which may be the same name.
[[noreturn]] void refuse_listed_twice(const std::string& optimizer, const std::string& first,
                                      const std::string& second);

/// The error of an operation that carries the gradients or values of several parameters. If its
/// message names the operation, as that of a timeout does, it also names the parameters: "tensor
/// 'ddp0/bucket0' (of 'fc2.bias', 'fc2.weight', 'fc1.bias' and 5 more) …".
Error naming_parameters(Error error, const std::string& operation,
                        const std::vector<std::string>& parameters);

/// Returns the result of `wait`, which waits for such an operation; its errors name the parameters.
/// `parameters` returns their names.
template <class Wait, class Parameters>
auto wait_naming(const std::string& operation, const Parameters& parameters, Wait&& wait) {
  try {
    return std::forward<Wait>(wait)();
  } catch (const OutOfStep& error) {
    throw OutOfStep(naming_parameters(error.error(), operation, parameters()), error.latest());
  } catch (const Exception& error) {
    throw Exception(naming_parameters(error.error(), operation, parameters()));
  }
}

}  // namespace kolo
