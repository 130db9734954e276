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

std::int64_t scale_int64(std::int64_t value, Scale scale) {
  if (scale.factor != 1.0) {
    // A long double holds every int64. Out of range saturates, since a conversion would not do.
    const long double product = std::trunc(static_cast<long double>(value) * scale.factor);
    constexpr long double kLimit = 9223372036854775808.0L;
    if (std::isnan(product)) {
      value = 0;
    } else if (product >= kLimit) {
      value = std::numeric_limits<std::int64_t>::max();
    } else if (product < -kLimit) {
      value = std::numeric_limits<std::int64_t>::min();
    } else {
      value = static_cast<std::int64_t>(product);
    }
  }
  // The smallest value has no positive counterpart: minus one wraps around as the sum does.
  if (scale.divisor == -1) return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value));
  return value / scale.divisor;
}

void reduce_int64(std::byte* destination, std::span<const std::byte* const> sources,
                  std::size_t count, Scale scale) {
  if (sources.size() > 1 || sources[0] != destination) sum_int64(destination, sources, count);
  if (scale.is_identity()) return;
  auto* const values = reinterpret_cast<std::int64_t*>(destination);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale_int64(values[i], scale);
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
    reduce(type, destination, {&source, 1}, count, scale);
  }

  void reduce(DataType type, std::byte* destination, std::span<const std::byte* const> sources,
              std::size_t count, Scale scale) const override {
    KOLO_CHECK(!sources.empty() && scale.divisor != 0);
    const double factor = scale.factor / static_cast<double>(scale.divisor);
    switch (type) {
      case DataType::kFloat32:
        return reduce_float32(destination, sources, count, static_cast<float>(factor));
      case DataType::kFloat64:
        return reduce_float64(destination, sources, count, factor);
      case DataType::kBFloat16:
        return reduce_bfloat16(destination, sources, count, static_cast<float>(factor));
      case DataType::kInt64:
        return reduce_int64(destination, sources, count, scale);
    }
  }
};

}  // namespace

const Device& host_device() {
  static const HostDevice device;
  return device;
}

}  // namespace kolo
