// Applies a function to every tensor of a batch or tuple. Used by the Accelerator; pure.
//
//   batch = kolo::map_tensors(std::move(batch),
//                             [](const torch::Tensor& tensor) { return tensor.to(torch::kHalf); });
#pragma once

#include <torch/data/example.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

template <class T>
struct IsExample : std::false_type {};
template <class Data, class Target>
struct IsExample<torch::data::Example<Data, Target>> : std::true_type {};

/// A vector or similar container of parts.
template <class T>
concept ListOfParts = !std::is_same_v<T, std::string> && requires(T& list) {
  list.begin();
  list.push_back(*list.begin());
};
template <class T>
concept OptionalPart = requires(T& part) {
  part.has_value();
  *part;
};

/// Whether T has only tensors that map_tensors() reaches, in an order that is the same on all
/// ranks: those of an Example, and of vectors, ordered maps, optionals, tuples and pairs.
template <class T>
constexpr bool is_all_tensors() {
  if constexpr (std::is_same_v<T, torch::Tensor>) {
    return true;
  } else if constexpr (IsExample<T>::value) {
    if constexpr (requires(T& example) { example.target; }) {
      return is_all_tensors<decltype(T::data)>() && is_all_tensors<decltype(T::target)>();
    } else {
      return is_all_tensors<decltype(T::data)>();
    }
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (is_all_tensors<std::tuple_element_t<I, T>>() && ...);
    }(std::make_index_sequence<std::tuple_size<T>::value>());
  } else if constexpr (requires {
                         typename T::mapped_type;
                         typename T::key_compare;
                       }) {
    return is_all_tensors<typename T::mapped_type>();
  } else if constexpr ((ListOfParts<T> || OptionalPart<T>)&&requires { typename T::value_type; }) {
    return is_all_tensors<typename T::value_type>();
  } else {
    return false;
  }
}

/// Whether a T may hold different tensors, or different numbers of them, on different ranks.
/// Precondition: is_all_tensors<T>().
template <class T>
constexpr bool has_varying_parts() {
  if constexpr (std::is_same_v<T, torch::Tensor>) {
    return false;
  } else if constexpr (IsExample<T>::value) {
    if constexpr (requires(T& example) { example.target; }) {
      return has_varying_parts<decltype(T::data)>() || has_varying_parts<decltype(T::target)>();
    } else {
      return has_varying_parts<decltype(T::data)>();
    }
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_varying_parts<std::tuple_element_t<I, T>>() || ...);
    }(std::make_index_sequence<std::tuple_size<T>::value>());
  } else {
    return true;
  }
}

/// Appends a map's key. A key that is neither text nor a number is identified only by its position.
template <class Key>
void append_key(const Key& key, std::string& parts) {
  if constexpr (std::is_convertible_v<const Key&, std::string_view>) {
    const std::string_view text = key;
    parts += "'" + std::string(text) + "'";
  } else if constexpr (std::is_arithmetic_v<Key>) {
    parts += "'" + std::to_string(key) + "'";
  }
}

/// Appends a description of the tensors in a value, in the order of map_tensors(). A tensor is t,
/// or - if undefined. [] encloses the parts of a list or map, with a 'key' before each part of a
/// map. () encloses the part of an optional.
template <class T>
void append_parts(const T& value, std::string& parts) {
  if constexpr (std::is_same_v<T, torch::Tensor>) {
    parts += value.defined() ? 't' : '-';
  } else if constexpr (requires { value.data; }) {
    append_parts(value.data, parts);
    if constexpr (requires { value.target; }) append_parts(value.target, parts);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&parts](const auto&... part) { (append_parts(part, parts), ...); }, value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    parts += '[';
    for (const auto& [key, part] : value) {
      append_key(key, parts);
      append_parts(part, parts);
    }
    parts += ']';
  } else if constexpr (requires { value.begin(); }) {
    parts += '[';
    for (const auto& part : value) append_parts(part, parts);
    parts += ']';
  } else {
    parts += '(';
    if (value.has_value()) append_parts(*value, parts);
    parts += ')';
  }
}

/// Returns `value` with each tensor replaced by the result of `change`. `value` is a tensor, an
/// Example (also without a target), or a vector, map, optional, tuple or pair of these. Other
/// values, and undefined tensors, stay as they are.
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
  } else if constexpr (ListOfParts<T>) {
    for (auto& part : value) part = map_tensors(std::move(part), change);
    return value;
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& [key, part] : value) part = map_tensors(std::move(part), change);
    return value;
  } else if constexpr (OptionalPart<T>) {
    if (value.has_value()) *value = map_tensors(std::move(*value), change);
    return value;
  } else {
    return value;
  }
}

}  // namespace kolo
