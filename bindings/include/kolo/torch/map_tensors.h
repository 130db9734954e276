// The same done to every tensor of a batch or a tuple. Used by the Accelerator; pure.
#pragma once

#include <torch/torch.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

/// A tensor, an Example (also without a target), or vectors, maps, optionals, tuples and pairs of
/// such: the same with what `change` makes of each tensor. Other values stay as they are.
template <class T, class Change>
T map_tensors(T value, const Change& change) {
  if constexpr (std::is_same_v<T, torch::Tensor>) {
    return value.defined() ? change(value) : value;
  } else if constexpr (requires { value.data; }) {
    value.data = map_tensors(std::move(value.data), change);
    if constexpr (requires { value.target; })
      value.target = map_tensors(std::move(value.target), change);
    return value;
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... parts) { ((parts = map_tensors(std::move(parts), change)), ...); },
               value);
    return value;
  } else if constexpr (requires {
                         value.begin();
                         value.push_back(*value.begin());
                       } && !std::is_same_v<T, std::string>) {
    for (auto& part : value) part = map_tensors(std::move(part), change);
    return value;
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& [key, part] : value) part = map_tensors(std::move(part), change);
    return value;
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) *value = map_tensors(std::move(*value), change);
    return value;
  } else {
    return value;
  }
}

}  // namespace kolo
