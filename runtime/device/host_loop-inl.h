// The loop of all vector kernels, for one instruction set. Included by host_floating.cc and
// host_integer.cc alone, once for each of Highway's targets, hence the guard that is turned over.
#if defined(KOLO_RUNTIME_DEVICE_HOST_LOOP) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_RUNTIME_DEVICE_HOST_LOOP
#undef KOLO_RUNTIME_DEVICE_HOST_LOOP
#else
#define KOLO_RUNTIME_DEVICE_HOST_LOOP
#endif

#include "runtime/device/host_kernels.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kolo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// An Element says how a few elements are loaded, computed with and stored; the loop below is
// written once. `V` is what holds them between: lanes() elements.

template <class T>
struct PlainElement {
  using Memory = T;
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(Tag()); }
  static HWY_INLINE V load(const T* memory) { return hn::LoadU(Tag(), memory); }
  static HWY_INLINE void store(V value, T* memory) { hn::StoreU(value, Tag(), memory); }
  template <class Op>
  static HWY_INLINE V both(const Op& op, V a, V b) {
    return op(a, b);
  }
  template <class Op>
  static HWY_INLINE V each(const Op& op, V a) {
    return op(a);
  }
  static T load_one(const T* memory) { return *memory; }
  static void store_one(T value, T* memory) { *memory = value; }
};

struct Add {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
  static float one(float a, float b) { return a + b; }
  static double one(double a, double b) { return a + b; }
  /// In unsigned arithmetic of at least 32 bits, which wraps around as it should.
  template <class T>
  static T one(T a, T b) {
    using Wide = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
    return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
};

struct NoFactor {
  template <class V>
  HWY_INLINE V operator()(V value) const {
    return value;
  }
};

/// Of `value` a NaN's payload is dropped, for what BFloat16Element relies on.
template <class E, class Scalar>
struct Factor {
  explicit Factor(Scalar value)
      : factor(value == value ? value : std::numeric_limits<Scalar>::quiet_NaN()),
        vector(hn::Set(typename E::Tag(), factor)) {}
  HWY_INLINE hn::Vec<typename E::Tag> operator()(hn::Vec<typename E::Tag> value) const {
    return hn::Mul(value, vector);
  }
  HWY_INLINE Scalar operator()(Scalar value) const { return value * factor; }
  Scalar factor;
  hn::Vec<typename E::Tag> vector;
};

/// kSources: one or two, which keeps all pointers in registers, or 0 for any number.
template <class E, class Op, std::size_t kSources, class Scaling>
HWY_INLINE void reduce_loop(std::byte* destination_bytes, Sources sources, std::size_t count,
                            const Scaling& scale) {
  const Op combine;
  using Memory = typename E::Memory;
  const std::size_t lanes = E::lanes();
  const auto source = [&](std::size_t k)
                          HWY_ATTR { return reinterpret_cast<const Memory*>(sources[k]); };
  auto* const destination = reinterpret_cast<Memory*>(destination_bytes);
  const Memory* const first = source(0);
  const Memory* const second = kSources == 2 ? source(1) : nullptr;

  const auto vector_at = [&](std::size_t i) HWY_ATTR {
    auto sum = E::load(first + i);
    if constexpr (kSources == 2) {
      sum = E::both(combine, sum, E::load(second + i));
    } else if constexpr (kSources == 0) {
      for (std::size_t k = 1; k < sources.size(); ++k)
        sum = E::both(combine, sum, E::load(source(k) + i));
    }
    return E::each(scale, sum);
  };

  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto a = vector_at(i);
    const auto b = vector_at(i + lanes);
    const auto c = vector_at(i + 2 * lanes);
    const auto d = vector_at(i + 3 * lanes);
    E::store(a, destination + i);
    E::store(b, destination + i + lanes);
    E::store(c, destination + i + 2 * lanes);
    E::store(d, destination + i + 3 * lanes);
  }
  for (; i + lanes <= count; i += lanes) E::store(vector_at(i), destination + i);
  for (; i < count; ++i) {
    auto sum = E::load_one(first + i);
    if constexpr (kSources == 2) {
      sum = Op::one(sum, E::load_one(second + i));
    } else if constexpr (kSources == 0) {
      for (std::size_t k = 1; k < sources.size(); ++k)
        sum = Op::one(sum, E::load_one(source(k) + i));
    }
    E::store_one(scale(sum), destination + i);
  }
}

template <class E, class Op, class Scaling>
void reduce_any(std::byte* destination, Sources sources, std::size_t count, const Scaling& scale) {
  switch (sources.size()) {
    case 1:
      return reduce_loop<E, Op, 1>(destination, sources, count, scale);
    case 2:
      return reduce_loop<E, Op, 2>(destination, sources, count, scale);
    default:
      return reduce_loop<E, Op, 0>(destination, sources, count, scale);
  }
}

}  // namespace kolo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
