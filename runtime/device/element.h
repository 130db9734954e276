// Kinds of types, and one element of any type as a double: tests and kolo-perf fill and read memory
// with it. Complex numbers are treated as real. Pure; any thread.
#pragma once

#include "runtime/device/bfloat16.h"
#include "runtime/device/float16.h"

#include <kolo/types.h>

#include <complex>
#include <cstddef>
#include <cstring>

namespace kolo {

constexpr bool is_integer(DataType type) {
  return !is_floating(type) && !is_complex(type) && type != DataType::kBool;
}
constexpr bool is_signed(DataType type) {
  return type != DataType::kUInt8 && type != DataType::kBool;
}

inline void store_element(DataType type, std::byte* to, double value) {
  const auto put = [&](auto element) { std::memcpy(to, &element, sizeof(element)); };
  switch (type) {
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(value);
    case DataType::kBFloat16:
      return put(bfloat16_of_float(static_cast<float>(value)));
    case DataType::kFloat16:
      return put(float16_of_float(static_cast<float>(value)));
    case DataType::kInt64:
      return put(static_cast<std::int64_t>(value));
    case DataType::kInt32:
      return put(static_cast<std::int32_t>(value));
    case DataType::kInt16:
      return put(static_cast<std::int16_t>(value));
    case DataType::kInt8:
      return put(static_cast<std::int8_t>(value));
    case DataType::kUInt8:
      return put(static_cast<std::uint8_t>(value));
    case DataType::kBool:
      return put(static_cast<std::uint8_t>(value != 0));
    case DataType::kComplex64:
      return put(std::complex<float>(static_cast<float>(value)));
    case DataType::kComplex128:
      return put(std::complex<double>(value));
  }
}

inline double load_element(DataType type, const std::byte* from) {
  const auto get = [&](auto element) {
    std::memcpy(&element, from, sizeof(element));
    return element;
  };
  switch (type) {
    case DataType::kFloat32:
    case DataType::kComplex64:
      return static_cast<double>(get(float{}));
    case DataType::kFloat64:
    case DataType::kComplex128:
      return get(double{});
    case DataType::kBFloat16:
      return static_cast<double>(float_of_bfloat16(get(std::uint16_t{})));
    case DataType::kFloat16:
      return static_cast<double>(float_of_float16(get(std::uint16_t{})));
    case DataType::kInt64:
      return static_cast<double>(get(std::int64_t{}));
    case DataType::kInt32:
      return get(std::int32_t{});
    case DataType::kInt16:
      return get(std::int16_t{});
    case DataType::kInt8:
      return get(std::int8_t{});
    case DataType::kUInt8:
    case DataType::kBool:
      return get(std::uint8_t{});
  }
  return 0;
}

}  // namespace kolo
