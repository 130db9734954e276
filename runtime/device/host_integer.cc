// The kernels for integers, bool and complex products, compiled once for each of Highway's
// instruction sets (see host_floating.cc). Processors lack instructions for integer products, so
// these are plain loops over blocks that the compiler vectorises.
#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/device/host_kernels.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/device/host_integer.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "runtime/device/host_loop.inc"

HWY_BEFORE_NAMESPACE();
namespace kolo::HWY_NAMESPACE {

/// Unsigned arithmetic of at least 32 bits, so that overflow wraps around.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

template <class T>
struct Product {
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
struct Lesser {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
  template <class T>
  static T one(T a, T b) {
    return b < a ? b : a;
  }
};
struct Greater {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
  template <class T>
  static T one(T a, T b) {
    return b > a ? b : a;
  }
};

/// A block is computed in local memory, so that the compiler knows that nothing overlaps.
template <class T, class Op>
void reduce_blocks(std::byte* destination, Sources sources, std::size_t count) {
  constexpr std::size_t kBlock = 1024 / sizeof(T);
  T sum[kBlock];
  T next[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t take = std::min(kBlock, count - begin);
    const std::size_t offset = begin * sizeof(T);
    std::memcpy(sum, sources[0] + offset, take * sizeof(T));
    for (std::size_t k = 1; k < sources.size(); ++k) {
      std::memcpy(next, sources[k] + offset, take * sizeof(T));
      if (take == kBlock) {
        for (std::size_t i = 0; i < kBlock; ++i) sum[i] = Op::of(sum[i], next[i]);
      } else {
        for (std::size_t i = 0; i < take; ++i) sum[i] = Op::of(sum[i], next[i]);
      }
    }
    std::memcpy(destination + offset, sum, take * sizeof(T));
  }
}

template <class T>
void reduce(Reduction reduction, const Destinations& destinations, Sources sources,
            std::size_t count) {
  using Element = PlainElement<T>;
  switch (reduction) {
    case Reduction::kSum:
      return reduce_any<Element, Add>(destinations, sources, count, NoFactor());
    case Reduction::kMin:
      return reduce_any<Element, Lesser>(destinations, sources, count, NoFactor());
    case Reduction::kMax:
      return reduce_any<Element, Greater>(destinations, sources, count, NoFactor());
    case Reduction::kProduct:
      return reduce_blocks<T, Product<T>>(destinations.all.front(), sources, count);
  }
}

void integer(DataType type, Reduction reduction, const Destinations& destinations, Sources sources,
             std::size_t count) {
  if (type == DataType::kInt64)
    return reduce<std::int64_t>(reduction, destinations, sources, count);
  if (type == DataType::kInt32)
    return reduce<std::int32_t>(reduction, destinations, sources, count);
  if (type == DataType::kInt16)
    return reduce<std::int16_t>(reduction, destinations, sources, count);
  if (type == DataType::kInt8) return reduce<std::int8_t>(reduction, destinations, sources, count);
  KOLO_CHECK(type == DataType::kUInt8 || type == DataType::kBool);
  if (type == DataType::kBool) {
    const bool is_or = reduction == Reduction::kSum || reduction == Reduction::kMax;
    reduction = is_or ? Reduction::kMax : Reduction::kMin;
  }
  reduce<std::uint8_t>(reduction, destinations, sources, count);
}

/// `count` complex numbers, a multiple of the vectors' lanes. Each product and each sum is rounded
/// separately: fused multiply-adds would give other bits on some processors and devices.
template <class T>
HWY_INLINE void multiply_vectors(T* destination, std::span<const T* const> sources,
                                 std::size_t count) {
  const hn::ScalableTag<T> tag;
  hn::Vec<decltype(tag)> real, imaginary, other_real, other_imaginary;
  for (std::size_t i = 0; i < count; i += hn::Lanes(tag)) {
    hn::LoadInterleaved2(tag, sources[0] + 2 * i, real, imaginary);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      hn::LoadInterleaved2(tag, sources[k] + 2 * i, other_real, other_imaginary);
      const auto product = hn::Sub(hn::Mul(real, other_real), hn::Mul(imaginary, other_imaginary));
      imaginary = hn::Add(hn::Mul(real, other_imaginary), hn::Mul(imaginary, other_real));
      real = product;
    }
    hn::StoreInterleaved2(real, imaginary, tag, destination + 2 * i);
  }
}

template <class T>
void multiply(std::byte* destination, Sources sources, std::size_t count) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<T>());
  const std::size_t whole = round_down(count, lanes);
  std::vector<const T*> pointers;
  for (const std::byte* const source : sources)
    pointers.push_back(reinterpret_cast<const T*>(source));
  multiply_vectors<T>(reinterpret_cast<T*>(destination), pointers, whole);
  if (whole == count) return;
  // The rest is copied into whole vectors, so that it takes the same path.
  const std::size_t bytes = 2 * (count - whole) * sizeof(T);
  const std::size_t stride = 2 * lanes;
  std::vector<T> rest(sources.size() * stride);
  for (std::size_t k = 0; k < sources.size(); ++k) {
    std::memcpy(rest.data() + k * stride, pointers[k] + 2 * whole, bytes);
    pointers[k] = rest.data() + k * stride;
  }
  multiply_vectors<T>(rest.data(), pointers, lanes);
  std::memcpy(reinterpret_cast<T*>(destination) + 2 * whole, rest.data(), bytes);
}

void complex_product(DataType type, std::byte* destination, Sources sources, std::size_t count) {
  if (type == DataType::kComplex64) return multiply<float>(destination, sources, count);
  KOLO_CHECK(type == DataType::kComplex128);
  multiply<double>(destination, sources, count);
}

}  // namespace kolo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo {

HWY_EXPORT(integer);
HWY_EXPORT(complex_product);

void reduce_integer(DataType type, Reduction reduction, const Destinations& destinations,
                    Sources sources, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(integer)(type, reduction, destinations, sources, count);
}

void multiply_complex(DataType type, std::byte* destination, Sources sources, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(complex_product)(type, destination, sources, count);
}

}  // namespace kolo
#endif  // HWY_ONCE
