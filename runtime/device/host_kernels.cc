// The host's vector kernels, compiled once for each instruction set by Highway's foreach_target:
// the preprocessor includes this file again and again, with another HWY_NAMESPACE each time.
#include "runtime/device/host_kernels.h"

#include "runtime/device/bfloat16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/device/host_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kolo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// An Element says how a lane is loaded, multiplied and stored; the loops below are written once.
// `V` is the vector in which sums are kept.

template <class T>
struct PlainElement {
  using Memory = T;
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;

  static HWY_INLINE V load(const T* memory) { return hn::LoadU(Tag(), memory); }
  static HWY_INLINE void store(V value, T* memory) { hn::StoreU(value, Tag(), memory); }
  static T load_one(const T* memory) { return *memory; }
  static void store_one(T value, T* memory) { *memory = value; }
  static T add_one(T a, T b) { return a + b; }
};

struct Int64Element : PlainElement<std::int64_t> {
  static std::int64_t add_one(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};

struct BFloat16Element {
  using Memory = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Signed = hn::RebindToSigned<Tag>;
  using Half = hn::Rebind<std::uint16_t, Tag>;

  static HWY_INLINE V load(const std::uint16_t* memory) {
    const auto wide = hn::PromoteTo(Bits(), hn::LoadU(Half(), memory));
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(wide));
  }
  static HWY_INLINE void store(V value, std::uint16_t* memory) {
    const Bits bits_tag;
    const auto bits = hn::BitCast(bits_tag, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(bits_tag, 1u));
    const auto rounded =
        hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7FFFu))));
    const auto quiet = hn::Or(upper, hn::Set(bits_tag, 0x40u));
    const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(value));
    const auto narrow = hn::BitCast(Signed(), hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(Half(), narrow), Half(), memory);
  }
  static float load_one(const std::uint16_t* memory) { return float_of_bfloat16(*memory); }
  static void store_one(float value, std::uint16_t* memory) { *memory = bfloat16_of_float(value); }
  static float add_one(float a, float b) { return a + b; }
};

struct NoFactor {
  template <class V>
  HWY_INLINE V operator()(V value) const {
    return value;
  }
};

template <class E, class Scalar>
struct Factor {
  explicit Factor(Scalar value) : factor(value), vector(hn::Set(typename E::Tag(), value)) {}
  HWY_INLINE typename E::V operator()(typename E::V value) const { return hn::Mul(value, vector); }
  HWY_INLINE Scalar operator()(Scalar value) const { return value * factor; }
  Scalar factor;
  typename E::V vector;
};

/// kSources: one or two, which keeps all pointers in registers, or 0 for any number.
template <class E, std::size_t kSources, class Scaling>
HWY_INLINE void reduce_loop(std::byte* destination_bytes, Sources sources, std::size_t count,
                            const Scaling& scale) {
  using Memory = typename E::Memory;
  const std::size_t lanes = hn::Lanes(typename E::Tag());
  const auto source = [&](std::size_t k)
                          HWY_ATTR { return reinterpret_cast<const Memory*>(sources[k]); };
  auto* const destination = reinterpret_cast<Memory*>(destination_bytes);
  const Memory* const first = source(0);
  const Memory* const second = kSources == 2 ? source(1) : nullptr;

  const auto vector_at = [&](std::size_t i) HWY_ATTR {
    auto sum = E::load(first + i);
    if constexpr (kSources == 2) {
      sum = hn::Add(sum, E::load(second + i));
    } else if constexpr (kSources == 0) {
      for (std::size_t k = 1; k < sources.size(); ++k) sum = hn::Add(sum, E::load(source(k) + i));
    }
    return scale(sum);
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
      sum = E::add_one(sum, E::load_one(second + i));
    } else if constexpr (kSources == 0) {
      for (std::size_t k = 1; k < sources.size(); ++k)
        sum = E::add_one(sum, E::load_one(source(k) + i));
    }
    E::store_one(scale(sum), destination + i);
  }
}

template <class E, class Scaling>
void reduce_any(std::byte* destination, Sources sources, std::size_t count, const Scaling& scale) {
  switch (sources.size()) {
    case 1:
      return reduce_loop<E, 1>(destination, sources, count, scale);
    case 2:
      return reduce_loop<E, 2>(destination, sources, count, scale);
    default:
      return reduce_loop<E, 0>(destination, sources, count, scale);
  }
}

template <class E, class Scalar>
void reduce_scaled(std::byte* destination, Sources sources, std::size_t count, Scalar factor) {
  if (factor == Scalar{1}) {
    reduce_any<E>(destination, sources, count, NoFactor());
  } else {
    reduce_any<E>(destination, sources, count, Factor<E, Scalar>(factor));
  }
}

void float32(std::byte* destination, Sources sources, std::size_t count, float factor) {
  reduce_scaled<PlainElement<float>>(destination, sources, count, factor);
}

void float64(std::byte* destination, Sources sources, std::size_t count, double factor) {
  reduce_scaled<PlainElement<double>>(destination, sources, count, factor);
}

void bfloat16(std::byte* destination, Sources sources, std::size_t count, float factor) {
  reduce_scaled<BFloat16Element>(destination, sources, count, factor);
}

void int64(std::byte* destination, Sources sources, std::size_t count) {
  reduce_any<Int64Element>(destination, sources, count, NoFactor());
}

}  // namespace kolo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo {

HWY_EXPORT(float32);
HWY_EXPORT(float64);
HWY_EXPORT(bfloat16);
HWY_EXPORT(int64);

void reduce_float32(std::byte* destination, Sources sources, std::size_t count, float factor) {
  HWY_DYNAMIC_DISPATCH(float32)(destination, sources, count, factor);
}

void reduce_float64(std::byte* destination, Sources sources, std::size_t count, double factor) {
  HWY_DYNAMIC_DISPATCH(float64)(destination, sources, count, factor);
}

void reduce_bfloat16(std::byte* destination, Sources sources, std::size_t count, float factor) {
  HWY_DYNAMIC_DISPATCH(bfloat16)(destination, sources, count, factor);
}

void sum_int64(std::byte* destination, Sources sources, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(int64)(destination, sources, count);
}

}  // namespace kolo
#endif  // HWY_ONCE
