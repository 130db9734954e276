// Sends values that are not tensors of one shape to all ranks: std::string (any bytes), numbers,
// torch::IValue, and types that torch::save and torch::load take (a tensor of any type, a vector of
// tensors, …). (After horovod.torch.broadcast_object and allgather_object.)
//
//   std::string run_id = kolo::broadcast_object(kolo::rank() == 0 ? new_id() : std::string(), 0);
//   std::vector<double> losses = kolo::allgather_object(loss.item<double>());
//
// - Collective. Use it for state and settings, not in every step: a value travels as a copy of its
//   bytes.
// - Tensors arrive on the CPU. Those inside a torch::IValue must be on the CPU already.
// - Any thread, as for tensors.
#pragma once

#include <kolo/kolo.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

struct ObjectOptions {
  std::string name = {};  ///< as AllreduceOptions::name
  ProcessSet process_set = {};
};

/// What a rank sends: its bytes, or the reason why it has none. All ranks then throw
/// kInvalidArgument, which names the failing rank, and none waits for it.
struct Parcel {
  std::string bytes = {};
  std::string failure = {};  ///< empty without a failure
};

/// Returns the root's bytes, of any length, on every rank of the process set. `root` is a rank of
/// the world. kolo does not read the others' bytes.
KOLO_API std::string broadcast_bytes(Parcel parcel, int root, const ObjectOptions& options = {});
/// Returns the bytes of every rank of the process set, in rank order. Throws the failure of the
/// lowest rank that has one.
KOLO_API std::vector<std::string> allgather_bytes(const Parcel& parcel,
                                                  const ObjectOptions& options = {});

/// Message of an exception in one line, without LibTorch's stack.
KOLO_API std::string reason_of(const std::exception& exception);

/// Throws kMismatch unless the number of received bytes is the size of the number here.
KOLO_API void check_number(std::size_t bytes, std::size_t size);

/// Throws kInvalidArgument for an undefined tensor.
KOLO_API void check_defined(const torch::Tensor& tensor);

/// Converts a value to bytes; from_bytes() converts back. T is a number, a string, a tensor, an
/// IValue, or else a default-constructible type that torch::save() takes. A tensor that is a view
/// is cloned first, because torch::save() would write all of its memory.
template <class T>
std::string to_bytes(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, torch::IValue>) {
    if (value.isTensor()) check_defined(value.toTensor());
    const std::vector<char> bytes = torch::pickle_save(value);
    return {bytes.begin(), bytes.end()};
  } else {
    std::ostringstream stream;
    if constexpr (std::is_same_v<T, torch::Tensor>) {
      check_defined(value);
      const bool view =
          value.has_storage() && !value.is_meta() && value.storage().nbytes() > value.nbytes();
      torch::save(view ? value.clone() : value, stream);
    } else {
      if constexpr (std::is_same_v<T, std::vector<torch::Tensor>>)
        for (const torch::Tensor& tensor : value) check_defined(tensor);
      torch::save(value, stream);
    }
    return std::move(stream).str();
  }
}

template <class T>
T from_bytes(std::string bytes) {
  if constexpr (std::is_arithmetic_v<T>) {
    check_number(bytes.size(), sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return bytes;
  } else if constexpr (std::is_same_v<T, torch::IValue>) {
    return torch::pickle_load({bytes.begin(), bytes.end()});
  } else {
    std::istringstream stream(std::move(bytes));
    T value;
    torch::load(value, stream, torch::Device(torch::kCPU));
    return value;
  }
}

/// to_bytes(), or the reason why it failed.
template <class T>
Parcel to_parcel(const T& value) {
  try {
    return {.bytes = to_bytes(value)};
  } catch (const std::exception& exception) {
    return {.failure = reason_of(exception)};
  }
}

/// Returns the root's value. On the root it is the value that the root passed.
template <class T>
T broadcast_object(T value, int root, const ObjectOptions& options = {}) {
  const bool is_root = kolo::rank() == root;
  std::string bytes = broadcast_bytes(is_root ? to_parcel(value) : Parcel(), root, options);
  return is_root ? std::move(value) : from_bytes<T>(std::move(bytes));
}

/// Returns the values of every rank's to_parcel(), in rank order.
template <class T>
std::vector<T> allgather_parcel(const Parcel& parcel, const ObjectOptions& options = {}) {
  std::vector<T> values;
  for (std::string& bytes : allgather_bytes(parcel, options)) {
    values.push_back(from_bytes<T>(std::move(bytes)));
  }
  return values;
}

/// Returns every rank's value, in rank order.
template <class T>
std::vector<T> allgather_object(const T& value, const ObjectOptions& options = {}) {
  return allgather_parcel<T>(to_parcel(value), options);
}

}  // namespace kolo
