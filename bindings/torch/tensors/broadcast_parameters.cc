#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/text_lines.h"

#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace kolo {
namespace {

/// Throws kMismatch on all ranks unless all have tensors of the same names. Otherwise ranks would
/// wait for a tensor that another rank lacks.
void check_same_names(const std::set<std::string>& names) {
  if (size() == 1) return;
  const std::string mine = join_lines(names);
  const auto number = static_cast<std::int64_t>(std::hash<std::string>()(mine));
  const auto numbers = allgather_object(number, {.name = "broadcast_parameters/(names)"});
  if (std::count(numbers.begin(), numbers.end(), numbers[0]) == size()) return;
  const auto all = allgather_object(mine, {.name = "broadcast_parameters/(all names)"});
  const std::vector<std::string> first = split_lines(all[0]);
  for (int r = 1; r < size(); ++r) {
    const std::vector<std::string> others = split_lines(all[static_cast<std::size_t>(r)]);
    std::vector<std::string> differ;
    std::set_symmetric_difference(first.begin(), first.end(), others.begin(), others.end(),
                                  std::back_inserter(differ));
    if (differ.empty()) continue;
    const bool has = std::binary_search(others.begin(), others.end(), differ[0]);
    raise(ErrorCode::kMismatch, "broadcast_parameters(): rank " + std::to_string(has ? r : 0) +
                                    " has a tensor '" + differ[0] + "', and rank " +
                                    std::to_string(has ? 0 : r) +
                                    " has none of this name; make the same module on every rank");
  }
}

}  // namespace

void broadcast_parameters(const NamedTensors& tensors, int root) {
  check_initialized("broadcast_parameters()");
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (names.insert(name).second) continue;
    raise(ErrorCode::kInvalidArgument,
          "broadcast_parameters(): two tensors are called '" + name +
              "'; call it once for each module, or put what tells them apart before their names");
  }
  check_same_names(names);
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
