// MemoryBinding: the addresses of a Schedule's operands in one operation. A value that the
// operation owns until it is done.
#pragma once

#include "runtime/base/rounding.h"
#include "runtime/device/device.h"
#include "runtime/device/partial_sums.h"
#include "runtime/memory/users_memory.h"

#include <kolo/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo {

class DeviceStream;
class MemoryRegion;

/// A piece of contiguous memory.
struct Segment {
  std::byte* data = nullptr;
  std::uint64_t elements = 0;
};

/// Pieces laid end to end; element offsets count across them.
class SegmentList {
 public:
  void append(std::byte* data, std::uint64_t elements);
  /// Elements without memory, so that the next piece begins at its offset. Only in lists of device
  /// memory, whose steps skip gaps.
  void append_gap(std::uint64_t elements) { append(nullptr, elements); }
  void clear();

  std::uint64_t elements() const { return ends_.empty() ? 0 : ends_.back(); }
  std::size_t size() const { return segments_.size(); }
  std::span<const Segment> segments() const { return segments_; }

  /// The rest of the segment that holds `offset`, from there on; empty beyond the end. A gap has
  /// null data.
  Segment rest_at(std::uint64_t offset, std::size_t element_size) const;

  /// Calls visit(std::byte* data, std::uint64_t elements) for the pieces of [offset,
  /// offset+length).
  template <class Visit>
  void for_each(std::uint64_t offset, std::uint64_t length, std::size_t element_size,
                Visit&& visit) const {
    for (std::size_t i = find(offset); length > 0; ++i) {
      const std::uint64_t begin = ends_[i] - segments_[i].elements;
      const std::uint64_t skip = offset - begin;
      const std::uint64_t take = std::min(length, segments_[i].elements - skip);
      if (take == 0) continue;
      visit(segments_[i].data + skip * element_size, take);
      offset += take;
      length -= take;
    }
  }

 private:
  std::size_t find(std::uint64_t offset) const;  ///< index of the segment that holds `offset`
  std::vector<Segment> segments_;
  std::vector<std::uint64_t> ends_;
  mutable std::size_t found_ = 0;  ///< result of the latest find()
};

/// Byte offsets of an operation's memory in its rank's window. Every signal carries them, so a rank
/// knows them once it has waited for the peer's signal. For several fused tensors, `input` and
/// `output` are the offsets of lists with one std::uint64_t per tensor. All ranks fuse the same
/// tensors.
struct WindowOffsets {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;

  std::uint64_t scratch = 0;
  std::uint64_t input = kNowhere;   ///< if peers may read it in place, unscaled
  std::uint64_t output = kNowhere;  ///< if peers may write it in place
};

/// The mapped memory of an operation.
struct MappedMemory {
  WindowOffsets own;
  std::span<const std::span<std::byte>> windows = {};  ///< by rank; outlives the operation
  /// Says when peers' user memory may be touched; null: always.
  UsersMemory* users = nullptr;
  std::span<const int> ranks = {};  ///< by rank: the rank in the world; outlives the operation
};

/// A peer's memory as mapped here; null or empty where it is not mapped.
struct PeerMemory {
  std::byte* scratch = nullptr;
  SegmentList input = {};
  SegmentList output = {};
};

struct MemoryBinding {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Scale prescale = {};
  Scale postscale = {};
  SegmentList input = {};
  SegmentList output = {};
  Stores output_stores = Stores::kCached;  ///< for results in user memory
  /// The stream that reduces and copies: all this memory is a device's, or pinned. Null: the host
  /// does.
  DeviceStream* stream = nullptr;
  /// Stream for copies out of kStaging, so that copies into it need not wait. Null: `stream`.
  DeviceStream* back_stream = nullptr;
  std::byte* scratch = nullptr;  ///< Schedule::scratch_elements elements
  /// If partial sums have another type: Schedule::partial_scratch_elements and
  /// partial_staging_elements of that type.
  std::byte* partial_scratch = nullptr;
  std::byte* partial_staging = nullptr;
  /// Schedule::staging_elements elements. In host memory, the host itself runs the steps that touch
  /// nothing else.
  std::byte* staging = nullptr;
  /// Registered device memory of `staging`, if the network reads and writes it there; else null.
  const MemoryRegion* networked = nullptr;
  MappedMemory mapped = {};
  std::vector<PeerMemory> peers = {};  ///< by rank; empty where unmapped or unknown

  bool widens() const { return partial_type(type, op) != type; }
};

/// Layout of a memory block for a space's elements and, behind them, its partial sums if these have
/// another type.
struct SpaceLayout {
  std::size_t partials_begin = 0;  ///< bytes
  std::size_t bytes = 0;

  SpaceLayout(const MemoryBinding& binding, std::uint64_t elements, std::uint64_t partials) {
    constexpr std::size_t kLine = 64;
    bytes = elements * size_of(binding.type);
    partials_begin = round_up(bytes, kLine);
    if (binding.widens() && partials > 0)
      bytes = partials_begin + partials * size_of(partial_type(binding.type, binding.op));
  }
};

}  // namespace kolo
