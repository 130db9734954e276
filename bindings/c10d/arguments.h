// Arguments of c10d calls: checks, which throw kInvalidArgument with the call's name, and
// conversions to the memory that kolo's operations take. Pure; any thread.
#pragma once

#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kolo::c10d_binding {

using Tensors = std::vector<torch::Tensor>;
using TensorLists = std::vector<Tensors>;

[[noreturn]] void refuse(const char* call, const std::string& why);

/// Returns the result of `check`. An exception's message begins with the name of the call.
template <class Check>
auto naming(const char* call, Check&& check) {
  try {
    return std::forward<Check>(check)();
  } catch (const Exception& error) {
    raise(error.code(), fmt::format("c10d {}: {}", call, error.what()));
  }
}

/// The only element of a list. c10d's lists once held a tensor per device; now they hold one.
template <class List>
auto& only(List& list, const char* call, const char* what) {
  if (list.size() != 1) refuse(call, fmt::format("takes one {}, not {}", what, list.size()));
  return list.front();
}

/// Undefined if the list is empty.
torch::Tensor first_of(const Tensors& list);
/// The first defined tensor; undefined if there is none.
const torch::Tensor& first_defined(const Tensors& list);
torch::Tensor first_defined(const TensorLists& lists);
template <class First, class Second>
torch::Tensor first_defined(const First& first, const Second& second) {
  torch::Tensor found = first_defined(first);
  return found.defined() ? found : first_defined(second);
}

/// Throws unless all tensors can be moved by one operation.
void check_types(const torch::Tensor& first, const Tensors& others, const char* call);
/// Throws if elements of an output share memory, as after expand(). Precondition: check_types().
void check_outputs(const Tensors& outputs, const char* call);
/// Throws unless the list has one tensor for each rank.
void check_count(const Tensors& list, std::size_t ranks, const char* call, const char* what);
void check_size(std::int64_t size, std::int64_t expected, const char* call, const char* what);

/// A contiguous version of the tensor, to be read in a scope without gradients; itself where it is
/// one.
torch::Tensor input_of(const torch::Tensor& tensor);
/// All tensors of the list, end to end.
torch::Tensor flat(const Tensors& list);
/// Number of elements of each tensor.
std::vector<std::int64_t> sizes_of(const Tensors& list);
/// Number of elements of each rank's part, from splits in rows or from an even split.
std::vector<std::int64_t> part_sizes(const torch::Tensor& tensor,
                                     const std::vector<std::int64_t>& splits, std::size_t ranks,
                                     const char* call, const char* what);
/// Copies `part` into the user's tensor, in its shape.
void copy_to(const torch::Tensor& tensor, const torch::Tensor& part);

}  // namespace kolo::c10d_binding
