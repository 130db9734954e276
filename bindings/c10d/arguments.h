// What c10d's callers pass: checks, which throw kInvalidArgument with the call's name, and memory
// as kolo's operations take it. Pure; any thread.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::c10d_binding {

using Tensors = std::vector<torch::Tensor>;
using TensorLists = std::vector<Tensors>;

[[noreturn]] void refuse(const char* call, const std::string& why);

/// The one of a list: c10d's lists have been of one device each since the days of several.
template <class List>
auto& only(List& list, const char* call, const char* what) {
  if (list.size() != 1) refuse(call, fmt::format("takes one {}, not {}", what, list.size()));
  return list.front();
}

/// Undefined, if there is none.
torch::Tensor first_of(const Tensors& list);
torch::Tensor first_of(const TensorLists& lists);

/// Throws unless all can be parts of one operation.
void check_types(const torch::Tensor& first, const Tensors& others, const char* call);
/// Throws if elements of one share memory, as after expand(). Precondition: check_types().
void check_outputs(const Tensors& outputs, const char* call);
/// One for each rank.
void check_count(const Tensors& list, std::size_t ranks, const char* call, const char* what);
void check_size(std::int64_t size, std::int64_t expected, const char* call, const char* what);

/// Contiguous.
torch::Tensor input_of(const torch::Tensor& tensor);
/// All end to end.
torch::Tensor flat(const Tensors& list);
/// Elements of each.
std::vector<std::int64_t> sizes_of(const Tensors& list);
/// Elements of each rank's part: splits of rows, or even ones.
std::vector<std::int64_t> part_sizes(const torch::Tensor& tensor,
                                     const std::vector<std::int64_t>& splits, std::size_t ranks,
                                     const char* call, const char* what);
/// `part` in the shape of the user's tensor, and there.
void copy_to(const torch::Tensor& tensor, const torch::Tensor& part);

}  // namespace kolo::c10d_binding
