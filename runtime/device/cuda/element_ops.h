// The arithmetic of single elements, as the host's Device defines it: how a type is loaded, scaled
// and stored, and how operations combine two values. Shared by kernels and tests; pure.
//
// An Element has Memory (its type in memory), Value (the type of computation) and Factor (a
// prepared scale). Compiled without contraction to fused multiply-adds, so that bits equal the
// host's.
#pragma once

#include "runtime/device/bfloat16.h"
#include "runtime/device/cuda/integer_scale.h"
#include "runtime/device/cuda/on_both.h"
#include "runtime/device/device.h"
#include "runtime/device/float16.h"

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace kolo::cuda {

/// float and double.
template <class T>
struct Real {
  using Memory = T;
  using Value = T;
  using Factor = T;
  static KOLO_ON_BOTH Value load(Memory memory) { return memory; }
  static KOLO_ON_BOTH Memory store(Value value) { return value; }
  static KOLO_ON_BOTH Factor factor(const Scale& scale) { return static_cast<T>(scale.factor); }
  static KOLO_ON_BOTH Value scaled(Value value, Factor factor) { return value * factor; }
};

struct Float16 {
  using Memory = std::uint16_t;
  using Value = float;
  using Factor = float;
  // The device's own conversions round as float16.h does.
  static KOLO_ON_BOTH Value load(Memory memory) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(memory));
#else
    return float_of_float16(memory);
#endif
  }
  static KOLO_ON_BOTH Memory store(Value value) {
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(value));
#else
    return float16_of_float(value);
#endif
  }
  static KOLO_ON_BOTH Factor factor(const Scale& scale) { return static_cast<float>(scale.factor); }
  static KOLO_ON_BOTH Value scaled(Value value, Factor factor) { return value * factor; }
};

struct BFloat16 {
  using Memory = std::uint16_t;
  using Value = float;
  using Factor = float;
  static KOLO_ON_BOTH Value load(Memory memory) { return float_of_bfloat16(memory); }
  static KOLO_ON_BOTH Memory store(Value value) {
#if defined(__CUDA_ARCH__)
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    return bfloat16_of_float(value);
#endif
  }
  static KOLO_ON_BOTH Factor factor(const Scale& scale) { return static_cast<float>(scale.factor); }
  static KOLO_ON_BOTH Value scaled(Value value, Factor factor) { return value * factor; }
};

template <class T>
struct Integer {
  using Memory = T;
  using Value = T;
  using Factor = Scale;
  static KOLO_ON_BOTH Value load(Memory memory) { return memory; }
  static KOLO_ON_BOTH Memory store(Value value) { return value; }
  static KOLO_ON_BOTH Factor factor(const Scale& scale) { return scale; }
  static KOLO_ON_BOTH Value scaled(Value value, const Factor& scale) {
    return scale.factor == 1.0 && scale.divisor == 1 ? value : scale_integer(value, scale);
  }
};

template <class T>
struct ComplexNumber {
  T real, imaginary;
};
template <class T>
struct Complex {
  using Memory = ComplexNumber<T>;
  using Value = ComplexNumber<T>;
  using Factor = T;
  static KOLO_ON_BOTH Value load(Memory memory) { return memory; }
  static KOLO_ON_BOTH Memory store(Value value) { return value; }
  static KOLO_ON_BOTH Factor factor(const Scale& scale) { return static_cast<T>(scale.factor); }
  static KOLO_ON_BOTH Value scaled(Value value, Factor factor) {
    return {value.real * factor, value.imaginary * factor};
  }
};

/// Unsigned arithmetic of at least 32 bits, so that overflow wraps around.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

struct Sum {
  template <class T>
  static KOLO_ON_BOTH T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Wide = Wrapping<T>;
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    } else {
      return a + b;
    }
  }
};
// A NaN on either side wins. Of two equal values the second stays, which matters for +0 and −0.
struct Minimum {
  template <class T>
  static KOLO_ON_BOTH T of(T a, T b) {
    return a != a || a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  static KOLO_ON_BOTH T of(T a, T b) {
    return a != a || a > b ? a : b;
  }
};
struct Product {
  template <class T>
  static KOLO_ON_BOTH T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Wide = Wrapping<T>;
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    } else {
      return a * b;
    }
  }
  template <class T>
  static KOLO_ON_BOTH ComplexNumber<T> of(ComplexNumber<T> a, ComplexNumber<T> b) {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
};

}  // namespace kolo::cuda
