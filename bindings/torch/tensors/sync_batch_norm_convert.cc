// convert_sync_batchnorm(): finds a module's batch norms and replaces those in a Sequential. User
// threads, before training; does not communicate.
#include <kolo/torch/sync_batch_norm.h>

#include "bindings/torch/tensors/tensor_memory.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// A batch norm in a Sequential.
struct Position {
  torch::nn::SequentialImpl* container;
  std::size_t index;
};

struct Found {
  std::set<const torch::nn::Module*> visited;  ///< one module may have several names
  std::vector<Position> positions;
  std::vector<std::string> members;  ///< names of those that cannot be replaced
};

bool is_batch_norm(const torch::nn::Module* module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(module) != nullptr;
}

void find(torch::nn::Module& module, const std::string& path, Found& found) {
  if (!found.visited.insert(&module).second) return;
  auto* const container = dynamic_cast<torch::nn::SequentialImpl*>(&module);
  const auto children = module.named_children();
  for (std::size_t i = 0; i < children.size(); ++i) {
    const std::string name = path.empty() ? children[i].key() : path + "." + children[i].key();
    if (!is_batch_norm(children[i].value().get())) {
      find(*children[i].value(), name, found);
    } else if (container != nullptr) {
      found.positions.push_back({container, i});
    } else {
      found.members.push_back("'" + name + "' (of " + module.name() + ")");
    }
  }
}

torch::nn::AnyModule made_of(torch::nn::Module* module, ProcessSet set) {
  if (const auto* const norm = dynamic_cast<torch::nn::BatchNorm1dImpl*>(module)) {
    return torch::nn::AnyModule(SyncBatchNorm(*norm, set));
  }
  if (const auto* const norm = dynamic_cast<torch::nn::BatchNorm2dImpl*>(module)) {
    return torch::nn::AnyModule(SyncBatchNorm(*norm, set));
  }
  return torch::nn::AnyModule(
      SyncBatchNorm(dynamic_cast<const torch::nn::BatchNorm3dImpl&>(*module), set));
}

}  // namespace

std::size_t convert_sync_batchnorm(torch::nn::Module& module, ProcessSet process_set) {
  Found found;
  if (is_batch_norm(&module)) found.members.push_back("the module itself (" + module.name() + ")");
  find(module, "", found);
  if (!found.members.empty()) {
    std::string names;
    for (const std::string& name : found.members) names += (names.empty() ? "" : ", ") + name;
    raise(ErrorCode::kUnsupported,
          "convert_sync_batchnorm: it replaces batch norms in a Sequential, which these are not: " +
              names + "; declare them as kolo::SyncBatchNorm");
  }
  for (const auto& [container, index] : found.positions) {
    torch::nn::AnyModule& position = *(container->begin() + static_cast<std::ptrdiff_t>(index));
    torch::nn::AnyModule made = made_of(position.ptr().get(), process_set);
    container->replace_module(container->named_children()[index].key(), made.ptr());
    position = std::move(made);
  }
  return found.positions.size();
}

}  // namespace kolo
