// Combines the results of a module's replicas. Used by Replicas; pure.
//
//   const std::vector<std::pair<torch::Tensor, torch::Tensor>> parts = outputs_of_replicas();
//   auto [first, second] = kolo::gather_outputs(parts, torch::Device("cuda:0"));
#pragma once

#include <kolo/export.h>
#include <kolo/torch/output_tensors.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
constexpr bool is_vector() {
  return IsVector<T>::value;
}

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
constexpr bool is_optional() {
  return IsOptional<T>::value;
}

/// Whether T is a tensor, or a nesting of tuples, pairs, arrays, optionals and vectors that holds
/// only tensors.
template <class T>
constexpr bool is_gatherable() {
  if constexpr (std::is_convertible_v<const T&, const torch::Tensor&>) {
    return true;
  } else if constexpr (TupleLike<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (is_gatherable<std::tuple_element_t<I, T>>() && ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (is_vector<T>() || is_optional<T>()) {
    return is_gatherable<typename T::value_type>();
  } else {
    return false;
  }
}

/// Concatenates the parts along dimension 0 on `device`; tensors without dimensions become the
/// elements of a vector. Autograd follows it.
KOLO_API torch::Tensor gather_tensors(const std::vector<torch::Tensor>& parts,
                                      torch::Device device);
/// Throws kMismatch: replicas have returned different numbers of values, `first` and `other`.
[[noreturn]] KOLO_API void raise_uneven_outputs(std::size_t first, std::size_t other);

/// Combines the replicas' results into one T, tensor by tensor. Throws kMismatch for vectors of
/// different length and if only some optionals are empty.
template <class T>
T gather_outputs(const std::vector<T>& parts, torch::Device device) {
  const auto collect = [&]<class Get>(const Get& get) {
    std::vector<std::decay_t<decltype(get(parts.front()))>> members;
    for (const T& part : parts) members.push_back(get(part));
    return gather_outputs(members, device);
  };
  if constexpr (std::is_same_v<T, torch::Tensor>) {
    return gather_tensors(parts, device);
  } else if constexpr (TupleLike<T>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return T{collect([](const T& part) { return std::get<I>(part); })...};
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (is_vector<T>()) {
    T result;
    for (const T& part : parts) {
      if (part.size() != parts.front().size()) {
        raise_uneven_outputs(parts.front().size(), part.size());
      }
    }
    for (std::size_t i = 0; i < parts.front().size(); ++i) {
      result.push_back(collect([i](const T& part) { return part[i]; }));
    }
    return result;
  } else {
    static_assert(is_optional<T>(), "forward returns tensors, or tuples and vectors of them");
    for (const T& part : parts) {
      if (part.has_value() != parts.front().has_value()) {
        raise_uneven_outputs(parts.front().has_value() ? 1 : 0, part.has_value() ? 1 : 0);
      }
    }
    return parts.front() ? T(collect([](const T& part) { return *part; })) : T();
  }
}

}  // namespace kolo
