// Device: operations on memory: copy, scale, sum. One implementation for each kind of memory; the
// host's uses Highway (run-time dispatch). Stateless; any thread may call it on memory that the
// thread owns.
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
  kStreaming,  ///< past the caches: for more than they hold, to memory that was not just read
};

/// A source of a half type, or of float32 (a partial sum).
struct TypedSource {
  const std::byte* data = nullptr;
  DataType type = DataType::kFloat32;
};

class Device {
 public:
  virtual ~Device() = default;

  /// destination = scale(source) for `count` elements. Both are the same memory or disjoint. bool
  /// allows only the identity; complex types are multiplied by the real factor.
  virtual void copy(DataType type, std::byte* destination, const std::byte* source,
                    std::size_t count, Scale scale) const = 0;

  /// Copies bytes past the caches. Source and destination are disjoint.
  virtual void stream(std::byte* destination, const std::byte* source, std::size_t bytes) const = 0;

  /// All destinations = scale(sources combined by `op`). There is at least one of each; a
  /// destination may be one of the sources. kAverage is a sum, whose divisor is in `scale`. Half
  /// types are computed in float32 and rounded once, to nearest even. Sources are combined in
  /// order, so that equal calls give equal bits. Preconditions: is_supported(type, op), and op is
  /// not kAdasum.
  virtual void reduce(DataType type, ReduceOp op, std::span<std::byte* const> destinations,
                      std::span<const std::byte* const> sources, std::size_t count, Scale scale,
                      Stores stores) const = 0;

  void reduce(DataType type, ReduceOp op, std::byte* destination,
              std::span<const std::byte* const> sources, std::size_t count, Scale scale) const {
    reduce(type, op, {&destination, 1}, sources, count, scale, Stores::kCached);
  }

  /// As reduce(), but each source is of one half type or of float32, as its TypedSource says;
  /// `target` is the type of the destinations. Computed in float32, and rounded if `target` is the
  /// half type. Sums and products only.
  virtual void reduce_mixed(DataType target, ReduceOp op, std::span<std::byte* const> destinations,
                            std::span<const TypedSource> sources, std::size_t count,
                            Scale scale) const = 0;

  /// destination = (1 − a·b / 2|a|²) a + (1 − a·b / 2|b|²) b, with dot products in float64. If one
  /// vector is zero, the result is the other. destination may be a or b. Floating types only.
  virtual void adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                      std::size_t count) const = 0;
};

/// Bytes of this processor's last-level cache; a usual size if the system does not tell.
std::size_t last_level_cache_bytes();

/// The Device for host memory. Lives as long as the process.
const Device& host_device();

}  // namespace kolo
