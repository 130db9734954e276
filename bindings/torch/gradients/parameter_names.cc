#include "bindings/torch/gradients/parameter_names.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>

#include <utility>

namespace kolo {

ParameterNames::ParameterNames(const NamedTensors& named, std::string prefix)
    : prefix_(std::move(prefix)) {
  std::map<std::string, const void*> tensors;
  for (const auto& [name, tensor] : named) {
    const void* const key = tensor.unsafeGetTensorImpl();
    if (const auto [it, is_new] = tensors.emplace(name, key); !is_new && it->second != key) {
      raise(ErrorCode::kInvalidArgument,
            fmt::format("{}two named parameters are called '{}'; where they are those of several "
                        "modules, put what tells them apart before their names",
                        prefix_, name));
    }
    names_.emplace(key, name);
  }
}

const std::string& ParameterNames::of(const torch::Tensor& parameter, std::size_t group,
                                      std::size_t index) const {
  const auto name = names_.find(parameter.unsafeGetTensorImpl());
  if (name != names_.end()) return name->second;
  raise(ErrorCode::kInvalidArgument,
        fmt::format("{}parameter {} of group {} of the optimizer is not among the named "
                    "parameters; pass the named_parameters() of the same module",
                    prefix_, index, group));
}

void refuse_listed_twice(const std::string& optimizer, const std::string& first,
                         const std::string& second) {
  raise(ErrorCode::kInvalidArgument,
        fmt::format("{}: the optimizer lists '{}' twice{}; list each parameter once (the "
                    "parameters() of a module that registers a weight under two names lists it "
                    "twice)",
                    optimizer, first,
                    first == second ? "" : fmt::format(", the second time as '{}'", second)));
}

}  // namespace kolo
