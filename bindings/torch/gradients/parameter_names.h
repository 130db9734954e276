// Names of an optimizer's parameters, as given by a module's named_parameters(). Private to
// bindings/torch; the training loop's thread.
#pragma once

#include <kolo/torch/broadcast_parameters.h>
#include <torch/torch.h>

#include <cstddef>
#include <string>
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

}  // namespace kolo
