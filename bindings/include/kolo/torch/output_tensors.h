// Finds the tensors in the result of a module's forward. Used by DistributedDataParallel, which
// follows the graph from these tensors; pure.
//
//   std::vector<torch::Tensor> tensors;
//   const bool complete = kolo::append_tensors(network->forward(input), tensors);
#pragma once

#include <torch/types.h>

#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; };

/// Appends the tensors of `value`, which is a tensor, a number, a string, or any nesting of tuples,
/// pairs, arrays, optionals, vectors and other ranges. Returns false if a part has another type,
/// because that part may have unknown tensors.
template <class T>
bool append_tensors(const T& value, std::vector<torch::Tensor>& tensors) {
  if constexpr (std::is_convertible_v<const T&, const torch::Tensor&>) {
    tensors.push_back(value);
    return true;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                       std::is_same_v<T, std::string>) {
    return true;
  } else if constexpr (TupleLike<T>) {
    return std::apply(
        [&](const auto&... parts) { return (append_tensors(parts, tensors) & ... & true); }, value);
  } else if constexpr (std::ranges::range<const T>) {
    bool known = true;
    for (const auto& part : value) known &= append_tensors(part, tensors);
    return known;
  } else if constexpr (requires {
                         typename T::value_type;
                         value.has_value();
                       }) {
    return !value.has_value() || append_tensors(*value, tensors);
  } else {
    return false;
  }
}

}  // namespace kolo
