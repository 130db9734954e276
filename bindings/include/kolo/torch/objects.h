// Values that are no tensors of one shape, sent to all ranks: std::string (any bytes),
// torch::IValue and whatever torch::save and torch::load take (a tensor of any type, a vector of
// tensors, …). Collective; for state and settings, not for every step: a value goes as a copy of
// its bytes. Tensors arrive on the CPU; those inside a torch::IValue must be there. (After
// horovod.torch.broadcast_object and allgather_object.) Any thread, as for tensors.
#pragma once

#include <kolo/kolo.h>
#include <torch/torch.h>

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
};

/// What a rank sends: bytes, or why it has none. A failure of one rank is then thrown by all of
/// them, as kInvalidArgument that names the rank, instead of leaving the others to wait.
struct Parcel {
  std::string bytes = {};
  std::string failure = {};  ///< empty: there is none
};

/// The root's bytes, of any length, on every rank; those of the others are not read.
KOLO_API std::string broadcast_bytes(Parcel parcel, int root, const ObjectOptions& options = {});
/// Every rank's bytes, by rank. Throws the failure of the lowest rank that has one.
KOLO_API std::vector<std::string> allgather_bytes(const Parcel& parcel,
                                                  const ObjectOptions& options = {});

/// What an exception says in one line, without LibTorch's stack.
KOLO_API std::string reason_of(const std::exception& exception);

/// Throws kMismatch unless as many bytes came as a number has here.
KOLO_API void check_number(std::size_t bytes, std::size_t size);

/// The bytes of a value, and the value of such bytes. T is a number, a string, a tensor, an IValue,
/// or else what torch::save() takes, and default-constructible. Of a tensor those that it shows:
/// torch::save() would take all of its memory along.
template <class T>
std::string to_bytes(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, torch::IValue>) {
    const std::vector<char> bytes = torch::pickle_save(value);
    return {bytes.begin(), bytes.end()};
  } else {
    std::ostringstream stream;
    if constexpr (std::is_same_v<T, torch::Tensor>) {
      const bool view = value.defined() && value.has_storage() && !value.is_meta() &&
                        value.storage().nbytes() > value.nbytes();
      torch::save(view ? value.clone() : value, stream);
    } else {
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

/// to_bytes(), or why it cannot be done.
template <class T>
Parcel to_parcel(const T& value) {
  try {
    return {.bytes = to_bytes(value)};
  } catch (const std::exception& exception) {
    return {.failure = reason_of(exception)};
  }
}

/// The root's value; on the root itself the very value that it passed.
template <class T>
T broadcast_object(T value, int root, const ObjectOptions& options = {}) {
  const bool is_root = kolo::rank() == root;
  std::string bytes = broadcast_bytes(is_root ? to_parcel(value) : Parcel(), root, options);
  return is_root ? std::move(value) : from_bytes<T>(std::move(bytes));
}

/// The values of every rank's to_parcel(), by rank.
template <class T>
std::vector<T> allgather_parcel(const Parcel& parcel, const ObjectOptions& options = {}) {
  std::vector<T> values;
  for (std::string& bytes : allgather_bytes(parcel, options)) {
    values.push_back(from_bytes<T>(std::move(bytes)));
  }
  return values;
}

/// Every rank's value, by rank.
template <class T>
std::vector<T> allgather_object(const T& value, const ObjectOptions& options = {}) {
  return allgather_parcel<T>(to_parcel(value), options);
}

}  // namespace kolo
