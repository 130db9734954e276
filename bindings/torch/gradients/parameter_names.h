// Names of an optimizer's parameters, as given by a module's named_parameters(). Private to
// bindings/torch; the training loop's thread.
#pragma once

#include <kolo/torch/broadcast_parameters.h>
#include <torch/torch.h>

#include <cstddef>
#include <map>
#include <string>

namespace kolo {

class ParameterNames {
 public:
  /// A weight that modules share may have several names: the first counts. Messages begin with
  /// `prefix`. Throws kInvalidArgument if two parameters have one name.
  ParameterNames(const NamedTensors& named, std::string prefix);
  /// Name of a parameter, which is at `index` of `group` in the optimizer. Throws kInvalidArgument
  /// if it is not among the named ones.
  const std::string& of(const torch::Tensor& parameter, std::size_t group, std::size_t index) const;

 private:
  std::string prefix_;
  std::map<const void*, std::string> names_;  ///< by tensor
};

/// Throws kInvalidArgument: `optimizer` (a class name) lists parameter `first` again, as `second`,
/// which may be the same name.
[[noreturn]] void refuse_listed_twice(const std::string& optimizer, const std::string& first,
                                      const std::string& second);

}  // namespace kolo
