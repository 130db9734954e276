// The pairwise step of Adasum (Maleki et al., MLSys 2021, equation 4) on the host. Called by
// host_device.cc; stateless, any thread.
#include "runtime/base/check.h"
#include "runtime/device/bfloat16.h"
#include "runtime/device/float16.h"
#include "runtime/device/host_kernels.h"

#include <cstring>

namespace kolo {
namespace {

template <class T>
struct Plain {
  using Memory = T;
  static double load(T value) { return static_cast<double>(value); }
  static T store(double value) { return static_cast<T>(value); }
};
struct Half16 {
  using Memory = std::uint16_t;
  static double load(std::uint16_t bits) { return static_cast<double>(float_of_float16(bits)); }
  static std::uint16_t store(double value) { return float16_of_float(static_cast<float>(value)); }
};
struct Brain16 {
  using Memory = std::uint16_t;
  static double load(std::uint16_t bits) { return static_cast<double>(float_of_bfloat16(bits)); }
  static std::uint16_t store(double value) { return bfloat16_of_float(static_cast<float>(value)); }
};

template <class E>
void combine(std::byte* destination_bytes, const std::byte* a_bytes, const std::byte* b_bytes,
             std::size_t count) {
  using Memory = typename E::Memory;
  const auto* const a = reinterpret_cast<const Memory*>(a_bytes);
  const auto* const b = reinterpret_cast<const Memory*>(b_bytes);
  auto* const destination = reinterpret_cast<Memory*>(destination_bytes);
  // Several partial sums: the compiler may not reorder a single one.
  constexpr std::size_t kLanes = 8;
  double aa[kLanes] = {};
  double bb[kLanes] = {};
  double ab[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t lane = i % kLanes;
    const double x = E::load(a[i]);
    const double y = E::load(b[i]);
    aa[lane] += x * x;
    bb[lane] += y * y;
    ab[lane] += x * y;
  }
  for (std::size_t lane = 1; lane < kLanes; ++lane) {
    aa[0] += aa[lane];
    bb[0] += bb[lane];
    ab[0] += ab[lane];
  }
  const double of_a = aa[0] == 0 ? 1 : 1 - ab[0] / (2 * aa[0]);
  const double of_b = bb[0] == 0 ? 1 : 1 - ab[0] / (2 * bb[0]);
  for (std::size_t i = 0; i < count; ++i)
    destination[i] = E::store(of_a * E::load(a[i]) + of_b * E::load(b[i]));
}

}  // namespace

void combine_adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                    std::size_t count) {
  if (type == DataType::kFloat32) return combine<Plain<float>>(destination, a, b, count);
  if (type == DataType::kFloat64) return combine<Plain<double>>(destination, a, b, count);
  if (type == DataType::kFloat16) return combine<Half16>(destination, a, b, count);
  KOLO_CHECK(type == DataType::kBFloat16);
  combine<Brain16>(destination, a, b, count);
}

}  // namespace kolo
