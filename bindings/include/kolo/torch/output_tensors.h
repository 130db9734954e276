// The tensors in what a module's forward returns. Used by DistributedDataParallel, which follows
// the graph from them; pure.
#pragma once

#include <torch/torch.h>

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

/// Appends the tensors of `value`: a tensor, a number, or tuples, pairs, arrays, optionals, vectors
/// and other ranges of such, nested at will. False if a part is of another type, whose tensors are
/// unknown then.
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
