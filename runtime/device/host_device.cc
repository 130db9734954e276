// The host as a Device: picks the kernel by element type and spares work that changes nothing.
// Called by the executor; stateless, any thread.
#include "runtime/base/check.h"
#include "runtime/device/device.h"
#include "runtime/device/host_kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kolo {
namespace {

template <class T>
T scale_integer(T value, Scale scale) {
  if (scale.factor != 1.0) {
    // A long double holds every int64. Out of range saturates, since a conversion would not do.
    const long double product = std::trunc(static_cast<long double>(value) * scale.factor);
    constexpr auto kSmallest = static_cast<long double>(std::numeric_limits<T>::min());
    constexpr auto kLargest = static_cast<long double>(std::numeric_limits<T>::max());
    if (std::isnan(product)) {
      value = 0;
    } else if (product > kLargest) {
      value = std::numeric_limits<T>::max();
    } else if (product < kSmallest) {
      value = std::numeric_limits<T>::min();
    } else {
      value = static_cast<T>(product);
    }
  }
  // The smallest value has no positive counterpart: minus one wraps around as the sum does.
  if (scale.divisor == -1) return static_cast<T>(0 - static_cast<std::uint64_t>(value));
  return static_cast<T>(static_cast<std::int64_t>(value) / scale.divisor);
}

template <class T>
void scale_integers(std::byte* destination, std::size_t count, Scale scale) {
  auto* const values = reinterpret_cast<T*>(destination);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale_integer(values[i], scale);
}

Reduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return Reduction::kSum;
    case ReduceOp::kMin:
      return Reduction::kMin;
    case ReduceOp::kMax:
      return Reduction::kMax;
    case ReduceOp::kProduct:
      return Reduction::kProduct;
    case ReduceOp::kAdasum:
      break;
  }
  KOLO_CHECK(false);
  return Reduction::kSum;
}

class HostDevice final : public Device {
 public:
  void copy(DataType type, std::byte* destination, const std::byte* source, std::size_t count,
            Scale scale) const override {
    if (scale.is_identity()) {
      if (destination != source && count > 0)
        std::memcpy(destination, source, count * size_of(type));
      return;
    }
    reduce(type, ReduceOp::kSum, destination, {&source, 1}, count, scale);
  }

  void reduce(DataType type, ReduceOp op, std::byte* destination,
              std::span<const std::byte* const> sources, std::size_t count,
              Scale scale) const override {
    KOLO_CHECK(!sources.empty() && scale.divisor != 0 && is_supported(type, op));
    const Reduction reduction = reduction_of(op);
    switch (type) {
      case DataType::kFloat32:
      case DataType::kFloat64:
      case DataType::kFloat16:
      case DataType::kBFloat16:
        return floating(type, reduction, destination, sources, count, scale);
      case DataType::kInt64:
        return integer<std::int64_t>(type, reduction, destination, sources, count, scale);
      case DataType::kInt32:
        return integer<std::int32_t>(type, reduction, destination, sources, count, scale);
      case DataType::kInt16:
        return integer<std::int16_t>(type, reduction, destination, sources, count, scale);
      case DataType::kInt8:
        return integer<std::int8_t>(type, reduction, destination, sources, count, scale);
      case DataType::kUInt8:
        return integer<std::uint8_t>(type, reduction, destination, sources, count, scale);
      case DataType::kBool:
        KOLO_CHECK(scale.is_identity());
        return reduce_integer(type, reduction, destination, sources, count);
      case DataType::kComplex64:
        return complex(type, DataType::kFloat32, reduction, destination, sources, count, scale);
      case DataType::kComplex128:
        return complex(type, DataType::kFloat64, reduction, destination, sources, count, scale);
    }
  }

  void adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
              std::size_t count) const override {
    combine_adasum(type, destination, a, b, count);
  }

 private:
  static void floating(DataType type, Reduction reduction, std::byte* destination, Sources sources,
                       std::size_t count, Scale scale) {
    const double factor = scale.factor / static_cast<double>(scale.divisor);
    reduce_floating(type, reduction, destination, sources, count, factor);
    const bool is_scaled = reduction == Reduction::kSum || reduction == Reduction::kProduct;
    if (is_scaled || factor == 1.0) return;
    const std::byte* const result = destination;
    reduce_floating(type, Reduction::kSum, destination, {&result, 1}, count, factor);
  }

  template <class T>
  static void integer(DataType type, Reduction reduction, std::byte* destination, Sources sources,
                      std::size_t count, Scale scale) {
    if (sources.size() > 1 || sources[0] != destination)
      reduce_integer(type, reduction, destination, sources, count);
    if (!scale.is_identity()) scale_integers<T>(destination, count, scale);
  }

  /// A sum is that of twice as many real numbers.
  static void complex(DataType type, DataType part, Reduction reduction, std::byte* destination,
                      Sources sources, std::size_t count, Scale scale) {
    if (reduction == Reduction::kSum)
      return floating(part, reduction, destination, sources, 2 * count, scale);
    KOLO_CHECK(reduction == Reduction::kProduct);
    multiply_complex(type, destination, sources, count);
    if (scale.is_identity()) return;
    const std::byte* const result = destination;
    floating(part, Reduction::kSum, destination, {&result, 1}, 2 * count, scale);
  }
};

}  // namespace

const Device& host_device() {
  static const HostDevice device;
  return device;
}

}  // namespace kolo
