// Device: what is done to memory where it lies: copy, scale, sum. One implementation a kind of
// memory; the host's uses Highway (run-time dispatch). Stateless; any thread may call it on memory
// that is its own.
#pragma once

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

/// A factor and a divisor, kept apart so that an integer average is a true integer division
/// (truncating toward zero). Floating types multiply by factor / divisor.
struct Scale {
  double factor = 1.0;
  std::int64_t divisor = 1;

  bool is_identity() const { return factor == 1.0 && divisor == 1; }
  friend bool operator==(const Scale&, const Scale&) = default;
};

/// How results are written.
enum class Stores : std::uint8_t {
  kCached,
  kStreaming,  ///< past the caches: of more than they hold, to memory that was not just read
};

/// Memory of a half type, or of float32: a partial sum.
struct TypedSource {
  const std::byte* data = nullptr;
  DataType type = DataType::kFloat32;
};

class Device {
 public:
  virtual ~Device() = default;

  /// destination = scale(source); `count` elements; the two are the same memory or disjoint. bool
  /// takes the identity alone; complex types are multiplied by the real factor.
  virtual void copy(DataType type, std::byte* destination, const std::byte* source,
                    std::size_t count, Scale scale) const = 0;

  /// The bytes as they are, past the caches; the two are disjoint.
  virtual void stream(std::byte* destination, const std::byte* source, std::size_t bytes) const = 0;

  /// All destinations = scale(sources, combined by `op`); one or more of each; a destination may be
  /// one of the sources. kAverage is the sum, whose divisor `scale` has. Half types are computed in
  /// float32 and rounded once, to nearest even; the order is that of `sources`, so equal calls give
  /// equal bits. Preconditions: is_supported(type, op), and op is not kAdasum.
  virtual void reduce(DataType type, ReduceOp op, std::span<std::byte* const> destinations,
                      std::span<const std::byte* const> sources, std::size_t count, Scale scale,
                      Stores stores) const = 0;

  void reduce(DataType type, ReduceOp op, std::byte* destination,
              std::span<const std::byte* const> sources, std::size_t count, Scale scale) const {
    reduce(type, op, {&destination, 1}, sources, count, scale, Stores::kCached);
  }

  /// As reduce(), where sources and destinations are of one half type or of float32, each as it
  /// says: computed in float32, and rounded where `target` is the half type. Sums and products.
  virtual void reduce_mixed(DataType target, ReduceOp op, std::span<std::byte* const> destinations,
                            std::span<const TypedSource> sources, std::size_t count,
                            Scale scale) const = 0;

  /// destination = (1 − a·b / 2|a|²) a + (1 − a·b / 2|b|²) b, with dot products in float64; a
  /// vector of zeros leaves the other. destination may be a or b. Floating types.
  virtual void adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                      std::size_t count) const = 0;
};

/// Of this processor; a usual size where the system does not tell it.
std::size_t last_level_cache_bytes();

/// The host's memory. No state; lives as long as the process.
const Device& host_device();

}  // namespace kolo
