// The kernels for floating types, compiled once for each instruction set by Highway's
// foreach_target: the preprocessor includes this file repeatedly, each time with another
// HWY_NAMESPACE.
#include "runtime/device/host_kernels.h"

#include "runtime/base/check.h"
#include "runtime/device/bfloat16.h"
#include "runtime/device/float16.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/device/host_floating.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "runtime/device/host_loop.inc"

HWY_BEFORE_NAMESPACE();
namespace kolo::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
struct BFloat16Element {
  using Memory = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;

  static std::size_t lanes() { return 1; }
  static V load(const std::uint16_t* memory) { return hn::Set(Tag(), load_one(memory)); }
  static void store(V value, std::uint16_t* memory) { store_one(hn::GetLane(value), memory); }
  static V load_wide(const float* memory) { return hn::LoadU(Tag(), memory); }
  static void store_wide(V value, float* memory) { hn::StoreU(value, Tag(), memory); }
  template <class Op>
  static V both(const Op& op, V a, V b) {
    return op(a, b);
  }
  template <class Op>
  static V each(const Op& op, V a) {
    return op(a);
  }
  static float load_one(const std::uint16_t* memory) { return float_of_bfloat16(*memory); }
  static void store_one(float value, std::uint16_t* memory) { *memory = bfloat16_of_float(value); }
};
#else
/// Two neighbours share 32 bits: the even element is the lower half; the odd element is the upper
/// half, where it already is a float32. So no element moves when it is widened or rounded. NaNs
/// need no special case. The lower half of every loaded NaN is zero, and no operation changes that,
/// so rounding leaves NaNs as they are.
struct BFloat16Element {
  using Memory = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Halves = hn::Repartition<std::uint16_t, Tag>;
  struct V {
    hn::Vec<Tag> even, odd;
  };

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(Halves()); }
  static HWY_INLINE V load(const std::uint16_t* memory) {
    const Bits bits;
    const auto pairs = hn::BitCast(bits, hn::LoadU(Halves(), memory));
    return {hn::BitCast(Tag(), hn::ShiftLeft<16>(pairs)),
            hn::BitCast(Tag(), hn::And(pairs, hn::Set(bits, 0xFFFF0000u)))};
  }
  static HWY_INLINE void store(V value, std::uint16_t* memory) {
    const Halves halves;
    const auto even = hn::BitCast(Bits(), value.even);
    const auto odd = hn::BitCast(Bits(), value.odd);
    const auto upper =
        hn::OddEven(hn::BitCast(halves, odd), hn::BitCast(halves, hn::ShiftRight<16>(even)));
    const auto lower =
        hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(odd)), hn::BitCast(halves, even));
    // Round up above a half, and at exactly a half if the last bit is set. This is the carry of
    // lower + 0x7FFF + last_bit, of which AverageRound() keeps all 17 bits.
    const auto last_bit = hn::And(upper, hn::Set(halves, std::uint16_t{1}));
    const auto carry = hn::ShiftRight<15>(
        hn::AverageRound(lower, hn::Or(last_bit, hn::Set(halves, std::uint16_t{0x7FFE}))));
    hn::StoreU(hn::Add(upper, carry), halves, memory);
  }
  /// A float32 computed elsewhere may be a NaN with any payload.
  static HWY_INLINE V load_wide(const float* memory) {
    V value;
    hn::LoadInterleaved2(Tag(), memory, value.even, value.odd);
    const auto nan = hn::Set(Tag(), std::numeric_limits<float>::quiet_NaN());
    return each([nan](hn::Vec<Tag> half)
                    HWY_ATTR { return hn::IfThenElse(hn::IsNaN(half), nan, half); },
                value);
  }
  static HWY_INLINE void store_wide(V value, float* memory) {
    hn::StoreInterleaved2(value.even, value.odd, Tag(), memory);
  }
  template <class Op>
  static HWY_INLINE V both(const Op& op, V a, V b) {
    return {op(a.even, b.even), op(a.odd, b.odd)};
  }
  template <class Op>
  static HWY_INLINE V each(const Op& op, V a) {
    return {op(a.even), op(a.odd)};
  }
  static float load_one(const std::uint16_t* memory) { return float_of_bfloat16(*memory); }
  static void store_one(float value, std::uint16_t* memory) { *memory = bfloat16_of_float(value); }
};
#endif

struct Float16Element {
  using Memory = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Signed = hn::RebindToSigned<Tag>;
  using Half = hn::Rebind<std::uint16_t, Tag>;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
  // The processor's own conversions, which round to nearest even. A NaN keeps its payload.
  using Native = hn::Rebind<hwy::float16_t, Tag>;
  static HWY_INLINE V load(const std::uint16_t* memory) {
    return hn::PromoteTo(Tag(), hn::BitCast(Native(), hn::LoadU(Half(), memory)));
  }
  static HWY_INLINE void store(V value, std::uint16_t* memory) {
    hn::StoreU(hn::BitCast(Half(), hn::DemoteTo(Native(), value)), Half(), memory);
  }
#else
  // With integer and float operations only, as in float16.h: some of Highway's conversions do not
  // round to nearest even.
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
  static HWY_INLINE V load_wide(const float* memory) { return hn::LoadU(Tag(), memory); }
  static HWY_INLINE void store_wide(V value, float* memory) { hn::StoreU(value, Tag(), memory); }
  static HWY_INLINE std::size_t lanes() { return hn::Lanes(Tag()); }
  template <class Op>
  static HWY_INLINE V both(const Op& op, V a, V b) {
    return op(a, b);
  }
  template <class Op>
  static HWY_INLINE V each(const Op& op, V a) {
    return op(a);
  }
  static float load_one(const std::uint16_t* memory) { return float_of_float16(*memory); }
  static void store_one(float value, std::uint16_t* memory) { *memory = float16_of_float(value); }
};

struct Multiply {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
  static float one(float a, float b) { return a * b; }
  static double one(double a, double b) { return a * b; }
};
// A NaN on either side wins, which the processor's instructions do not ensure.
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

template <class E, class Scalar>
void reduce(Reduction reduction, const Destinations& destinations, Sources sources,
            std::size_t count, Scalar factor) {
  switch (reduction) {
    case Reduction::kSum:
      if (factor == Scalar{1}) return reduce_any<E, Add>(destinations, sources, count, NoFactor());
      return reduce_any<E, Add>(destinations, sources, count, Factor<E, Scalar>(factor));
    case Reduction::kMin:
      return reduce_any<E, Minimum>(destinations, sources, count, NoFactor());
    case Reduction::kMax:
      return reduce_any<E, Maximum>(destinations, sources, count, NoFactor());
    case Reduction::kProduct:
      if (factor == Scalar{1})
        return reduce_any<E, Multiply>(destinations, sources, count, NoFactor());
      return reduce_any<E, Multiply>(destinations, sources, count, Factor<E, Scalar>(factor));
  }
}

void floating(DataType type, Reduction reduction, const Destinations& destinations, Sources sources,
              std::size_t count, double factor) {
  const auto narrow = static_cast<float>(factor);
  if (type == DataType::kFloat32)
    return reduce<PlainElement<float>>(reduction, destinations, sources, count, narrow);
  if (type == DataType::kFloat64)
    return reduce<PlainElement<double>>(reduction, destinations, sources, count, factor);
  if (type == DataType::kFloat16)
    return reduce<Float16Element>(reduction, destinations, sources, count, narrow);
  KOLO_CHECK(type == DataType::kBFloat16);
  reduce<BFloat16Element>(reduction, destinations, sources, count, narrow);
}

/// Memory of E's half type, or of float32 (is_wide).
template <class E>
struct MixedMemory {
  const std::byte* data;
  bool is_wide;

  HWY_INLINE typename E::V load(std::size_t i) const {
    return is_wide ? E::load_wide(reinterpret_cast<const float*>(data) + i)
                   : E::load(reinterpret_cast<const std::uint16_t*>(data) + i);
  }
  float load_one(std::size_t i) const {
    return is_wide ? reinterpret_cast<const float*>(data)[i]
                   : E::load_one(reinterpret_cast<const std::uint16_t*>(data) + i);
  }
};

template <class E, class Op, class Scaling>
void mixed_loop(bool is_wide, std::span<std::byte* const> destinations,
                std::span<const TypedSource> sources, std::size_t count, const Scaling& scale) {
  const Op combine;
  const auto memory_of = [&](std::size_t k) HWY_ATTR {
    return MixedMemory<E>{sources[k].data, sources[k].type == DataType::kFloat32};
  };
  const auto first = memory_of(0), second = memory_of(sources.size() > 1 ? 1 : 0);
  const std::size_t lanes = E::lanes();
  const auto vector_at = [&](std::size_t i) HWY_ATTR {
    auto sum = first.load(i);
    if (sources.size() > 1) sum = E::both(combine, sum, second.load(i));
    for (std::size_t k = 2; k < sources.size(); ++k)
      sum = E::both(combine, sum, memory_of(k).load(i));
    return E::each(scale, sum);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = vector_at(i);
    for (std::byte* const to : destinations) {
      if (is_wide) {
        E::store_wide(value, reinterpret_cast<float*>(to) + i);
      } else {
        E::store(value, reinterpret_cast<std::uint16_t*>(to) + i);
      }
    }
  }
  for (; i < count; ++i) {
    float sum = first.load_one(i);
    for (std::size_t k = 1; k < sources.size(); ++k) sum = Op::one(sum, memory_of(k).load_one(i));
    const float value = scale(sum);
    for (std::byte* const to : destinations) {
      if (is_wide) {
        reinterpret_cast<float*>(to)[i] = value;
      } else {
        E::store_one(value, reinterpret_cast<std::uint16_t*>(to) + i);
      }
    }
  }
}

template <class E, class Op>
void mixed_of(bool is_wide, std::span<std::byte* const> destinations,
              std::span<const TypedSource> sources, std::size_t count, float factor) {
  if (factor == 1.0F) return mixed_loop<E, Op>(is_wide, destinations, sources, count, NoFactor());
  mixed_loop<E, Op>(is_wide, destinations, sources, count, Factor<E, float>(factor));
}

void mixed(DataType half, bool is_wide, Reduction reduction,
           std::span<std::byte* const> destinations, std::span<const TypedSource> sources,
           std::size_t count, double factor) {
  const auto narrow = static_cast<float>(factor);
  const bool is_product = reduction == Reduction::kProduct;
  KOLO_CHECK(is_product || reduction == Reduction::kSum);
  if (half == DataType::kFloat16) {
    if (is_product)
      return mixed_of<Float16Element, Multiply>(is_wide, destinations, sources, count, narrow);
    return mixed_of<Float16Element, Add>(is_wide, destinations, sources, count, narrow);
  }
  KOLO_CHECK(half == DataType::kBFloat16);
  if (is_product)
    return mixed_of<BFloat16Element, Multiply>(is_wide, destinations, sources, count, narrow);
  mixed_of<BFloat16Element, Add>(is_wide, destinations, sources, count, narrow);
}

}  // namespace kolo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo {

HWY_EXPORT(floating);
HWY_EXPORT(mixed);

void reduce_floating(DataType type, Reduction reduction, const Destinations& destinations,
                     Sources sources, std::size_t count, double factor) {
  HWY_DYNAMIC_DISPATCH(floating)(type, reduction, destinations, sources, count, factor);
}

void reduce_mixed(DataType half, bool is_wide, Reduction reduction,
                  std::span<std::byte* const> destinations, std::span<const TypedSource> sources,
                  std::size_t count, double factor) {
  HWY_DYNAMIC_DISPATCH(mixed)(half, is_wide, reduction, destinations, sources, count, factor);
}

}  // namespace kolo
#endif  // HWY_ONCE
