// A tensor of any type whose memory lies in pieces, for tests on scattered memory.
#pragma once

#include "runtime/execution/memory_binding.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo::test {

/// Cut into `pieces` at offsets that `seed` determines, with gaps between them. The gaps hold a
/// pattern that must not change.
class Tensor {
 public:
  Tensor(DataType type, std::uint64_t count, int pieces, unsigned seed);

  const SegmentList& segments() const { return segments_; }
  /// The value must need no rounding in the tensor's type.
  void set(std::uint64_t i, double value);
  double get(std::uint64_t i) const;
  /// Differs from its first value after somebody has written into a gap.
  std::size_t bytes_of_pattern() const;

 private:
  std::byte* at(std::uint64_t i) const;

  DataType type_;
  std::vector<std::byte> memory_;
  SegmentList segments_;
};

}  // namespace kolo::test
