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

class Device {
 public:
  virtual ~Device() = default;

  /// destination = scale(source); `count` elements; the two are the same memory or disjoint.
  virtual void copy(DataType type, std::byte* destination, const std::byte* source,
                    std::size_t count, Scale scale) const = 0;

  /// destination = scale(sum of sources); one source or more; destination may be one of them.
  /// bfloat16 is summed in float32 and rounded once, to nearest even; the order is that of
  /// `sources`, so equal calls give equal bits.
  virtual void reduce(DataType type, std::byte* destination,
                      std::span<const std::byte* const> sources, std::size_t count,
                      Scale scale) const = 0;
};

/// The host's memory. No state; lives as long as the process.
const Device& host_device();

}  // namespace kolo
