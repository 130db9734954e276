// The kernels of floating types, compiled once for each instruction set by Highway's
// foreach_target: the preprocessor includes this file again and again, with another HWY_NAMESPACE
// each time.
#include "runtime/device/host_kernels.h"

#include "runtime/base/check.h"
#include "runtime/device/bfloat16.h"
#include "runtime/device/float16.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/device/host_floating.cc"
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
};

struct Float16Element {
  using Memory = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Signed = hn::RebindToSigned<Tag>;
  using Half = hn::Rebind<std::uint16_t, Tag>;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
  // The processor's own conversions, which round to nearest even; a NaN keeps its payload.
  using Native = hn::Rebind<hwy::float16_t, Tag>;
  static HWY_INLINE V load(const std::uint16_t* memory) {
    return hn::PromoteTo(Tag(), hn::BitCast(Native(), hn::LoadU(Half(), memory)));
  }
  static HWY_INLINE void store(V value, std::uint16_t* memory) {
    hn::StoreU(hn::BitCast(Half(), hn::DemoteTo(Native(), value)), Half(), memory);
  }
#else
  // In integers and floats alone, as float16.h does it: not every conversion of Highway's rounds
  // to nearest even.
  static HWY_INLINE V load(const std::uint16_t* memory) {
    const Tag tag;
    const Bits bits_tag;
    const auto wide = hn::PromoteTo(bits_tag, hn::LoadU(Half(), memory));
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(bits_tag, 0x8000u)));
    const auto magnitude = hn::And(wide, hn::Set(bits_tag, 0x7FFFu));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(bits_tag, 112u << 23));
    const auto special = hn::Or(shifted, hn::Set(bits_tag, 0x7F800000u));
    const auto subnormal = hn::BitCast(
        bits_tag,
        hn::Mul(hn::ConvertTo(tag, hn::BitCast(Signed(), magnitude)), hn::Set(tag, 0x1p-24F)));
    auto bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits_tag, 0x7BFFu)), special, normal);
    bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits_tag, 0x400u)), subnormal, bits);
    return hn::BitCast(tag, hn::Or(bits, sign));
  }
  static HWY_INLINE void store(V value, std::uint16_t* memory) {
    const Tag tag;
    const Bits bits_tag;
    const auto bits = hn::BitCast(bits_tag, value);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 0x8000u));
    const auto magnitude = hn::And(bits, hn::Set(bits_tag, 0x7FFFFFFFu));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(bits_tag, 1u));
    const auto normal =
        hn::ShiftRight<13>(hn::Sub(hn::Add(magnitude, hn::Add(odd, hn::Set(bits_tag, 0xFFFu))),
                                   hn::Set(bits_tag, 112u << 23)));
    const auto subnormal =
        hn::Sub(hn::BitCast(bits_tag, hn::Add(hn::BitCast(tag, magnitude), hn::Set(tag, 0.5F))),
                hn::Set(bits_tag, 0x3F000000u));
    auto half =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits_tag, 0x38800000u)), subnormal, normal);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits_tag, 0x477FEFFFu)),
                          hn::Set(bits_tag, 0x7C00u), half);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits_tag, 0x7F800000u)),
                          hn::Set(bits_tag, 0x7E00u), half);
    const auto narrow = hn::BitCast(Signed(), hn::Or(half, sign));
    hn::StoreU(hn::DemoteTo(Half(), narrow), Half(), memory);
  }
#endif
  static float load_one(const std::uint16_t* memory) { return float_of_float16(*memory); }
  static void store_one(float value, std::uint16_t* memory) { *memory = float16_of_float(value); }
};

struct Add {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
  static float one(float a, float b) { return a + b; }
  static double one(double a, double b) { return a + b; }
};
struct Multiply {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
  static float one(float a, float b) { return a * b; }
  static double one(double a, double b) { return a * b; }
};
// A NaN on either side wins, which the instructions themselves do not do.
struct Minimum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const auto least = hn::Min(a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, least));
  }
  template <class T>
  static T one(T a, T b) {
    return std::isnan(a) || a < b ? a : b;
  }
};
struct Maximum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const auto largest = hn::Max(a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, largest));
  }
  template <class T>
  static T one(T a, T b) {
    return std::isnan(a) || a > b ? a : b;
  }
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
template <class E, class Op, std::size_t kSources, class Scaling>
HWY_INLINE void reduce_loop(std::byte* destination_bytes, Sources sources, std::size_t count,
                            const Scaling& scale) {
  const Op combine;
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
      sum = combine(sum, E::load(second + i));
    } else if constexpr (kSources == 0) {
      for (std::size_t k = 1; k < sources.size(); ++k) sum = combine(sum, E::load(source(k) + i));
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

template <class E, class Scalar>
void reduce(Reduction reduction, std::byte* destination, Sources sources, std::size_t count,
            Scalar factor) {
  switch (reduction) {
    case Reduction::kSum:
      if (factor == Scalar{1}) return reduce_any<E, Add>(destination, sources, count, NoFactor());
      return reduce_any<E, Add>(destination, sources, count, Factor<E, Scalar>(factor));
    case Reduction::kMin:
      return reduce_any<E, Minimum>(destination, sources, count, NoFactor());
    case Reduction::kMax:
      return reduce_any<E, Maximum>(destination, sources, count, NoFactor());
    case Reduction::kProduct:
      if (factor == Scalar{1})
        return reduce_any<E, Multiply>(destination, sources, count, NoFactor());
      return reduce_any<E, Multiply>(destination, sources, count, Factor<E, Scalar>(factor));
  }
}

void floating(DataType type, Reduction reduction, std::byte* destination, Sources sources,
              std::size_t count, double factor) {
  const auto narrow = static_cast<float>(factor);
  if (type == DataType::kFloat32)
    return reduce<PlainElement<float>>(reduction, destination, sources, count, narrow);
  if (type == DataType::kFloat64)
    return reduce<PlainElement<double>>(reduction, destination, sources, count, factor);
  if (type == DataType::kFloat16)
    return reduce<Float16Element>(reduction, destination, sources, count, narrow);
  KOLO_CHECK(type == DataType::kBFloat16);
  reduce<BFloat16Element>(reduction, destination, sources, count, narrow);
}

}  // namespace kolo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo {

HWY_EXPORT(floating);

void reduce_floating(DataType type, Reduction reduction, std::byte* destination, Sources sources,
                     std::size_t count, double factor) {
  HWY_DYNAMIC_DISPATCH(floating)(type, reduction, destination, sources, count, factor);
}

}  // namespace kolo
#endif  // HWY_ONCE
