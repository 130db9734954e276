// DeviceStep: enqueues a schedule's reduces and copies on a device's stream, each as one batch of
// its contiguous pieces. Part of DeviceQueue; reuses its buffers from step to step.
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
  /// Enqueues one kReduce or kCopy; returns before it is done. kInternal if an operand is not
  /// bound. kAborted if a peer's users have got memory back that the step uses. Otherwise fails as
  /// the device does.
  Status enqueue(const Schedule& schedule, const Step& step, const MemoryBinding& binding,
                 DeviceStream& stream);

  /// Peers' user memory is touched until the device has done the steps that use it. mark(): an
  /// event was recorded after everything enqueued so far.
  void mark() { touches_unmarked_ = false; }
  /// The latest such event is reached.
  void reach_mark() {
    if (!touches_unmarked_) touch_.reset();
  }
  /// The device has done everything, or has failed.
  void end() {
    touch_.reset();
    touches_unmarked_ = false;
  }

 private:
  Status may_touch(const Schedule& schedule, const Step& step, const MemoryBinding& binding);
  /// Converts a source that is no partial sum to the partial type, because other sources are
  /// partial sums.
  Status widen(const Schedule& schedule, Operand& source, const MemoryBinding& binding,
               DeviceStream& stream);
  Combination combination_of(const Step& step, const MemoryBinding& binding, DataType target_type,
                             DataType source_type, std::size_t destinations) const;
  /// Cuts the step's operands where one of them is not contiguous. Leaves out pieces that have no
  /// memory and pieces that would be copied onto themselves.
  Status cut(const Combination& what, std::span<const Operand> destinations,
             const MemoryBinding& binding);
  void add_piece(std::uint64_t elements);
  Status adasum(const Combination& what, DeviceStream& stream) const;
  /// Copies all pieces, of one source and one destination, by the copy engines.
  Status copy_all(std::size_t element, DeviceStream& stream) const;
  std::vector<Operand> step_sources_;
  std::vector<const std::byte*> sources_;  ///< all pieces
  std::vector<std::byte*> destinations_;   ///< all pieces
  std::vector<std::uint64_t> counts_;      ///< by piece
  std::vector<Segment> operands_;          ///< rest of each operand: sources, then destinations
  std::optional<UsersMemory::DeviceTouch> touch_;
  bool touches_unmarked_ = false;  ///< steps since mark() touch peers' user memory
};

}  // namespace kolo
