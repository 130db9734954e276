#include "bindings/torch/gradients/parameter_names.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

namespace kolo {

std::vector<ListedParameter> list_named(
    const std::string& optimizer, const std::vector<torch::optim::OptimizerParamGroup>& groups,
    const NamedTensors& named) {
  std::map<std::string, const void*> tensors;
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : named) {
    const void* const key = tensor.unsafeGetTensorImpl();
    if (const auto [it, is_new] = tensors.emplace(name, key); !is_new && it->second != key) {
      raise(ErrorCode::kInvalidArgument,
            fmt::format("{}: two named parameters are called '{}'; where they are those of several "
                        "modules, put what tells them apart before their names",
                        optimizer, name));
    }
    names.emplace(key, name);
  }
  std::vector<ListedParameter> listed;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const torch::Tensor& tensor : groups[g].params()) {
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      if (name == names.end()) {
        raise(ErrorCode::kInvalidArgument,
              fmt::format("{}: parameter {} of group {} of the optimizer is not among the named "
                          "parameters; pass the named_parameters() of the same module",
                          optimizer, &tensor - groups[g].params().data(), g));
      }
      listed.push_back({name->second, tensor, g});
    }
  }
  return listed;
}

Error naming_parameters(Error error, const std::string& operation,
                        const std::vector<std::string>& parameters) {
  constexpr std::size_t kShown = 3;
  const std::string quoted = "'" + operation + "'";
  const std::size_t at = error.message.find(quoted);
  if (at == std::string::npos || parameters.empty()) return error;
  const std::size_t shown = std::min(parameters.size(), kShown);
  const std::size_t more = parameters.size() - shown;
  error.message.insert(
      at + quoted.size(),
      fmt::format(" (of '{}'{})", fmt::join(std::span(parameters).first(shown), "', '"),
                  more > 0 ? fmt::format(" and {} more", more) : ""));
  return error;
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
