// MemoryBinding: the addresses that a Schedule's operands stand for in one operation. A value that
// the operation owns until it is done.
#pragma once

#include "runtime/communicator/users_memory.h"
#include "runtime/device/device.h"
#include "runtime/device/partial_sums.h"

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

/// Pieces laid end to end: element offsets count across them.
class SegmentList {
 public:
  void append(std::byte* data, std::uint64_t elements);
  /// Elements that are nowhere, so that what follows begins where it should: of a device's lists
  /// alone, whose steps leave them out.
  void append_gap(std::uint64_t elements) { append(nullptr, elements); }
  void clear();

  std::uint64_t elements() const { return ends_.empty() ? 0 : ends_.back(); }
  std::size_t size() const { return segments_.size(); }
  std::span<const Segment> segments() const { return segments_; }

  /// What is left of the segment that holds `offset`, from there on; empty beyond the end. A gap's
  /// memory is null.
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
  mutable std::size_t found_ = 0;  ///< by the last find()
};

/// Where an operation's memory lies in its rank's window, in bytes. Every notice carries it, so a
/// peer's is known once it was awaited. Of several fused tensors, which ranks fuse alike, it says
/// where the window has the list of their places, a std::uint64_t each.
struct WindowPlaces {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;

  std::uint64_t scratch = 0;
  std::uint64_t input = kNowhere;   ///< if peers may read it there, unscaled
  std::uint64_t output = kNowhere;  ///< if peers may write it there
};

/// The mapped memory of an operation.
struct MappedMemory {
  WindowPlaces own;
  std::span<const std::span<std::byte>> windows = {};  ///< by rank; outlives the operation
  /// When peers' users' memory may be touched; null: always.
  UsersMemory* users = nullptr;
  std::span<const int> ranks = {};  ///< by rank: that of the world; outlives the operation
};

/// A peer's memory as it is mapped here; null or empty where it is not.
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
  Stores output_stores = Stores::kCached;  ///< of what goes into users' memory
  /// All of this memory is a device's, or pinned: its stream reduces and copies. Null: the host's.
  DeviceStream* stream = nullptr;
  /// For what comes from kStaging, so that what goes there need not wait for it. Null: `stream`.
  DeviceStream* back_stream = nullptr;
  std::byte* scratch = nullptr;  ///< Schedule::scratch_elements elements
  /// Where partial sums are of another type: Schedule::partial_scratch_elements of that; likewise.
  std::byte* partial_scratch = nullptr;
  std::byte* partial_staging = nullptr;
  /// Schedule::staging_elements elements. Of the host: what touches nothing else is done by it, and
  /// not on the stream.
  std::byte* staging = nullptr;
  /// Of the device, if that is registered memory of it, which the network reads and writes.
  const MemoryRegion* networked = nullptr;
  MappedMemory mapped = {};
  std::vector<PeerMemory> peers = {};  ///< by rank; nothing where unmapped or unknown

  bool widens() const { return partial_type(type, op) != type; }
};

/// How a block of memory holds a space's elements and, behind them, its partial sums, if these are
/// of another type.
struct SpaceLayout {
  std::size_t partials_begin = 0;  ///< bytes
  std::size_t bytes = 0;

  SpaceLayout(const MemoryBinding& binding, std::uint64_t elements, std::uint64_t partials) {
    constexpr std::size_t kLine = 64;
    bytes = elements * size_of(binding.type);
    partials_begin = (bytes + kLine - 1) / kLine * kLine;
    if (binding.widens() && partials > 0)
      bytes = partials_begin + partials * size_of(partial_type(binding.type, binding.op));
  }
};

}  // namespace kolo
