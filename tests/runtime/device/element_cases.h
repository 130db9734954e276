// The element types for the device's tests, and how a test runs with each instruction set of this
// processor. One thread at a time: the process has one choice of the instruction set.
#pragma once

#include "runtime/device/bfloat16.h"
#include "runtime/device/device.h"
#include "runtime/device/float16.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <complex>
#include <random>
#include <type_traits>

namespace kolo::test {

template <class Check>
void with_each_target(Check check) {
  const auto choose = [](std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    choose(target);
    check();
  }
  choose(0);
}

/// A type for the tests: its memory type, and the number type in which it is computed.
template <DataType type, class M, class N = M>
struct Case {
  static constexpr DataType kType = type;
  using Memory = M;
  using Number = N;
  static N load(M value) { return value; }
  static M store(N value) { return value; }
};
using Float32 = Case<DataType::kFloat32, float>;
using Float64 = Case<DataType::kFloat64, double>;
using Int64 = Case<DataType::kInt64, std::int64_t>;
using Int32 = Case<DataType::kInt32, std::int32_t>;
using Int16 = Case<DataType::kInt16, std::int16_t>;
using Int8 = Case<DataType::kInt8, std::int8_t>;
using UInt8 = Case<DataType::kUInt8, std::uint8_t>;
using Complex64 = Case<DataType::kComplex64, std::complex<float>>;
using Complex128 = Case<DataType::kComplex128, std::complex<double>>;
struct BFloat16 : Case<DataType::kBFloat16, std::uint16_t, float> {
  static float load(std::uint16_t bits) { return float_of_bfloat16(bits); }
  static std::uint16_t store(float value) { return bfloat16_of_float(value); }
};
struct Float16 : Case<DataType::kFloat16, std::uint16_t, float> {
  static float load(std::uint16_t bits) { return float_of_float16(bits); }
  static std::uint16_t store(float value) { return float16_of_float(value); }
};
struct Bool : Case<DataType::kBool, std::uint8_t, bool> {
  static bool load(std::uint8_t value) { return value != 0; }
  static std::uint8_t store(bool value) { return value ? 1 : 0; }
};

template <class N>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <class C>
typename C::Memory random_element(std::mt19937& random) {
  using Number = typename C::Number;
  if constexpr (std::is_same_v<Number, bool>) {
    return C::store(random() % 2 == 0);
  } else if constexpr (std::is_integral_v<Number>) {
    return C::store(static_cast<Number>(random()));  // wraps around in sums and products
  } else if constexpr (IsComplex<Number>::value) {
    return {static_cast<typename Number::value_type>(static_cast<int>(random() % 9) - 4),
            static_cast<typename Number::value_type>(static_cast<int>(random() % 9) - 4)};
  } else {
    return C::store(static_cast<Number>(static_cast<int>(random() % 41) - 20) / 4);
  }
}

}  // namespace kolo::test
