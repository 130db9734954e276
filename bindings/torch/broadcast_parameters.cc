#include "bindings/torch/check_initialized.h"
#include "bindings/torch/tensor_memory.h"

#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/functions.h>

#include <exception>
#include <set>

namespace kolo {

void broadcast_parameters(const NamedTensors& tensors, int root) {
  check_initialized("broadcast_parameters()");
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (names.insert(name).second) continue;
    raise(ErrorCode::kInvalidArgument,
          "broadcast_parameters(): two tensors are called '" + name +
              "'; call it once for each module, or put what tells them apart before their names");
  }
  std::vector<TensorWork> works;
  std::exception_ptr first;
  works.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    try {
      works.push_back(broadcast_async_(tensor, root, {.name = "broadcast_parameters/" + name}));
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  for (TensorWork& work : works) {
    try {
      work.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void broadcast_parameters(const torch::OrderedDict<std::string, torch::Tensor>& tensors, int root) {
  broadcast_parameters(NamedTensors(tensors.pairs()), root);
}

void broadcast_parameters(const torch::nn::Module& module, int root) {
  NamedTensors tensors = module.named_parameters().pairs();
  for (auto& buffer : module.named_buffers().pairs()) tensors.push_back(std::move(buffer));
  broadcast_parameters(tensors, root);
}

}  // namespace kolo
