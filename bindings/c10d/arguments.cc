#include "bindings/c10d/arguments.h"

#include "bindings/torch/tensors/tensor_memory.h"
#include "bindings/torch/tensors/tensor_refusal.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace kolo::c10d_binding {

void refuse(const char* call, const std::string& why) {
  raise(ErrorCode::kInvalidArgument, fmt::format("c10d {}: {}", call, why));
}

torch::Tensor first_of(const Tensors& list) { return list.empty() ? torch::Tensor() : list[0]; }

const torch::Tensor& first_defined(const Tensors& list) {
  static const torch::Tensor none;
  const auto found =
      std::find_if(list.begin(), list.end(), [](const auto& tensor) { return tensor.defined(); });
  return found == list.end() ? none : *found;
}

torch::Tensor first_defined(const TensorLists& lists) {
  torch::Tensor found;
  for (const Tensors& list : lists)
    if (!found.defined()) found = first_defined(list);
  return found;
}

void check_types(const torch::Tensor& first, const Tensors& others, const char* call) {
  const auto check = [&](const torch::Tensor& tensor) {
    naming(call, [&] {
      (void)moved_type_of(tensor, {});
      check_one_device(first, tensor, {});
    });
  };
  check(first);
  for (const torch::Tensor& other : others) {
    check(other);
    if (other.scalar_type() == first.scalar_type()) continue;
    refuse(call,
           fmt::format("its tensors have types {} and {}; all of a call have one",
                       torch::toString(first.scalar_type()), torch::toString(other.scalar_type())));
  }
}

void check_count(const Tensors& list, std::size_t ranks, const char* call, const char* what) {
  if (list.size() != ranks)
    refuse(call, fmt::format("takes {} {}, one of each rank, not {}", ranks, what, list.size()));
}

void check_outputs(const Tensors& outputs, const char* call) {
  for (const torch::Tensor& output : outputs) {
    if (const std::string why = overlap_in(output); !why.empty()) refuse(call, why);
  }
}

void check_size(std::int64_t size, std::int64_t expected, const char* call, const char* what) {
  if (size != expected)
    refuse(call, fmt::format("the {} has {} elements instead of {}", what, size, expected));
}

torch::Tensor input_of(const torch::Tensor& tensor) {
  return is_plain(tensor) ? tensor : plain(tensor.detach());
}

std::vector<std::int64_t> sizes_of(const Tensors& list) {
  std::vector<std::int64_t> sizes;
  for (const torch::Tensor& tensor : list) sizes.push_back(tensor.numel());
  return sizes;
}

torch::Tensor flat(const Tensors& list) {
  Tensors parts;
  for (const torch::Tensor& tensor : list) parts.push_back(tensor.detach().reshape({-1}));
  return plain(parts.size() == 1 ? parts.front() : torch::cat(parts));
}

void copy_to(const torch::Tensor& tensor, const torch::Tensor& part) {
  tensor.detach().copy_(part.view(tensor.sizes()));
}

std::vector<std::int64_t> part_sizes(const torch::Tensor& tensor,
                                     const std::vector<std::int64_t>& splits, std::size_t ranks,
                                     const char* call, const char* what) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::int64_t in_row = rows == 0 ? 0 : tensor.numel() / rows;
  const auto count = static_cast<std::int64_t>(ranks);
  if (splits.empty()) {
    if (rows % count != 0)
      refuse(call, fmt::format("{} rows of the {} cannot be split evenly among {} ranks; give "
                               "splits",
                               rows, what, count));
    return std::vector<std::int64_t>(ranks, rows / count * in_row);
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) sum += split;
  const bool is_valid =
      splits.size() == ranks && sum == rows &&
      std::all_of(splits.begin(), splits.end(), [](std::int64_t split) { return split >= 0; });
  if (!is_valid) {
    refuse(call, fmt::format("the splits of the {} are [{}], but {} numbers that sum to its {} "
                             "rows are needed",
                             what, fmt::join(splits, ", "), ranks, rows));
  }
  std::vector<std::int64_t> sizes;
  for (const std::int64_t split : splits) sizes.push_back(split * in_row);
  return sizes;
}

}  // namespace kolo::c10d_binding
