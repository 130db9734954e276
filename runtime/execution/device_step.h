// DeviceStep: hands a schedule's reduces and copies to a device's stream, each as one batch of its
// contiguous pieces. A part of DeviceQueue; keeps its working space from step to step.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/device/accelerator.h"
#include "runtime/execution/memory_binding.h"

#include <kolo/error.h>

#include <optional>
#include <span>
#include <vector>

namespace kolo {

class DeviceStep {
 public:
  /// Hands in one kReduce or kCopy; returns before it is done. Fails with kInternal when an operand
  /// is not bound, with kAborted when a peer's users have got back memory that it takes, or as the
  /// device does.
  Status hand_in(const Schedule& schedule, const Step& step, const MemoryBinding& binding,
                 DeviceStream& stream);

  /// Peers' users' memory is touched until the device has done what takes it: an event stands after
  /// all that was handed in; …
  void mark() { touches_unmarked_ = false; }
  /// … the last such event is reached; …
  void reach_mark() {
    if (!touches_unmarked_) touch_.reset();
  }
  /// … the device has done all, or has failed.
  void end() {
    touch_.reset();
    touches_unmarked_ = false;
  }

 private:
  Status may_touch(const Schedule& schedule, const Step& step, const MemoryBinding& binding);
  /// Replaces an input or a result among partial sums by itself as one.
  Status widen(const Schedule& schedule, Operand& source, const MemoryBinding& binding,
               DeviceStream& stream);
  /// The pieces, of one source and one destination, by the copy engines.
  Status copy_all(std::size_t element, DeviceStream& stream) const;
  std::vector<Operand> step_sources_;
  std::vector<const std::byte*> sources_;  ///< of all pieces
  std::vector<std::byte*> destinations_;   ///< of all pieces
  std::vector<std::uint64_t> counts_;      ///< by piece
  std::vector<Segment> operands_;          ///< what is left of each: sources, then destinations
  std::optional<UsersMemory::DeviceTouch> touch_;
  bool touches_unmarked_ = false;  ///< by what was handed in since mark()
};

}  // namespace kolo
