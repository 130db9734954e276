// The host as a Device: picks the kernel by element type and skips work that changes nothing.
// Called by the executor; stateless, any thread.
#include "runtime/base/check.h"
#include "runtime/device/device.h"
#include "runtime/device/host_kernels.h"
#include "runtime/device/partial_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

namespace kolo {
namespace {

/// Bytes that are computed and then copied to the other destinations at a time.
constexpr std::size_t kPiece = 8 << 10;

template <class T>
T scale_integer(T value, Scale scale) {
  if (scale.factor != 1.0) {
    // A long double holds every int64. Values out of range saturate, because converting them would
    // be undefined.
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
  // The smallest value has no positive counterpart: its division by −1 wraps around, as the sum
  // does.
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
    Device::reduce(type, ReduceOp::kSum, destination, {&source, 1}, count, scale);
  }

  void stream(std::byte* destination, const std::byte* source, std::size_t bytes) const override {
    reduce_integer(DataType::kUInt8, Reduction::kSum, {{&destination, 1}, Stores::kStreaming},
                   {&source, 1}, bytes);
  }

  void reduce(DataType type, ReduceOp op, std::span<std::byte* const> destinations, Sources sources,
              std::size_t count, Scale scale, Stores stores) const override {
    KOLO_CHECK(!destinations.empty() && !sources.empty() && scale.divisor != 0 &&
               is_supported(type, op));
    const Reduction reduction = reduction_of(op);
    if (takes_all(type, reduction, scale))
      return run(type, reduction, {destinations, stores}, sources, count, scale);
    if (destinations.size() == 1)
      return run(type, reduction, {destinations}, sources, count, scale);
    // In pieces that are still in the first-level cache when they are copied to the other
    // destinations.
    const std::size_t piece = kPiece / size_of(type);
    std::vector<const std::byte*> from(sources.begin(), sources.end());
    for (std::size_t done = 0; done < count; done += piece) {
      const std::size_t take = std::min(piece, count - done);
      std::byte* const first = destinations.front() + done * size_of(type);
      run(type, reduction, {{&first, 1}}, from, take, scale);
      for (std::byte* const other : destinations.subspan(1))
        std::memcpy(other + done * size_of(type), first, take * size_of(type));
      for (const std::byte*& source : from) source += take * size_of(type);
    }
  }

  void reduce_mixed(DataType target, ReduceOp op, std::span<std::byte* const> destinations,
                    std::span<const TypedSource> sources, std::size_t count,
                    Scale scale) const override {
    const bool is_wide = target == DataType::kFloat32;
    DataType half = target;
    for (const TypedSource& source : sources)
      if (source.type != DataType::kFloat32) half = source.type;
    KOLO_CHECK(!destinations.empty() && !sources.empty() && is_half(half) && rounds(op));
    kolo::reduce_mixed(half, is_wide, reduction_of(op), destinations, sources, count,
                       scale.factor / static_cast<double>(scale.divisor));
  }

  void adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
              std::size_t count) const override {
    combine_adasum(type, destination, a, b, count);
  }

 private:
  /// Whether one pass over the sources does everything. Otherwise the kernels take one destination,
  /// and then work on the result there.
  static bool takes_all(DataType type, Reduction reduction, Scale scale) {
    const bool is_sum = reduction == Reduction::kSum;
    switch (type) {
      case DataType::kFloat32:
      case DataType::kFloat64:
      case DataType::kFloat16:
      case DataType::kBFloat16:
        return is_sum || reduction == Reduction::kProduct || scale.is_identity();
      case DataType::kInt64:
      case DataType::kInt32:
      case DataType::kInt16:
      case DataType::kInt8:
      case DataType::kUInt8:
        return reduction != Reduction::kProduct && scale.is_identity();
      case DataType::kBool:
        return true;
      case DataType::kComplex64:
      case DataType::kComplex128:
        return is_sum;
    }
    return false;
  }

  static void run(DataType type, Reduction reduction, const Destinations& destinations,
                  Sources sources, std::size_t count, Scale scale) {
    switch (type) {
      case DataType::kFloat32:
      case DataType::kFloat64:
      case DataType::kFloat16:
      case DataType::kBFloat16:
        return floating(type, reduction, destinations, sources, count, scale);
      case DataType::kInt64:
        return integer<std::int64_t>(type, reduction, destinations, sources, count, scale);
      case DataType::kInt32:
        return integer<std::int32_t>(type, reduction, destinations, sources, count, scale);
      case DataType::kInt16:
        return integer<std::int16_t>(type, reduction, destinations, sources, count, scale);
      case DataType::kInt8:
        return integer<std::int8_t>(type, reduction, destinations, sources, count, scale);
      case DataType::kUInt8:
        return integer<std::uint8_t>(type, reduction, destinations, sources, count, scale);
      case DataType::kBool:
        KOLO_CHECK(scale.is_identity());
        return reduce_integer(type, reduction, destinations, sources, count);
      case DataType::kComplex64:
        return complex(type, DataType::kFloat32, reduction, destinations, sources, count, scale);
      case DataType::kComplex128:
        return complex(type, DataType::kFloat64, reduction, destinations, sources, count, scale);
    }
  }

  static void floating(DataType type, Reduction reduction, const Destinations& destinations,
                       Sources sources, std::size_t count, Scale scale) {
    const double factor = scale.factor / static_cast<double>(scale.divisor);
    reduce_floating(type, reduction, destinations, sources, count, factor);
    const bool is_scaled = reduction == Reduction::kSum || reduction == Reduction::kProduct;
    if (is_scaled || factor == 1.0) return;
    const std::byte* const result = destinations.all.front();
    reduce_floating(type, Reduction::kSum, destinations, {&result, 1}, count, factor);
  }

  template <class T>
  static void integer(DataType type, Reduction reduction, const Destinations& destinations,
                      Sources sources, std::size_t count, Scale scale) {
    std::byte* const first = destinations.all.front();
    if (sources.size() > 1 || destinations.all.size() > 1 || sources[0] != first)
      reduce_integer(type, reduction, destinations, sources, count);
    if (!scale.is_identity()) scale_integers<T>(first, count, scale);
  }

  /// A complex sum is a sum of twice as many real numbers.
  static void complex(DataType type, DataType part, Reduction reduction,
                      const Destinations& destinations, Sources sources, std::size_t count,
                      Scale scale) {
    if (reduction == Reduction::kSum)
      return floating(part, reduction, destinations, sources, 2 * count, scale);
    KOLO_CHECK(reduction == Reduction::kProduct);
    std::byte* const first = destinations.all.front();
    multiply_complex(type, first, sources, count);
    if (scale.is_identity()) return;
    const std::byte* const result = first;
    floating(part, Reduction::kSum, {{&first, 1}}, {&result, 1}, 2 * count, scale);
  }
};

}  // namespace

std::size_t last_level_cache_bytes() {
  static const std::size_t bytes = [] {
    // On some machines sysconf() reports the caches of all processors together.
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
    std::size_t size = 0;
    char unit = 0;
    constexpr std::size_t kUsual = 32 << 20;
    return file >> size >> unit && unit == 'K' ? size << 10 : kUsual;
  }();
  return bytes;
}

const Device& host_device() {
  static const HostDevice device;
  return device;
}

}  // namespace kolo
