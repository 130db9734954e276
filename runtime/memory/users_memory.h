// UsersMemory: when a rank may access ("touch") the memory of its host's other ranks' users, which
// it has mapped: their host arenas and device arenas. After a failure, users get their memory back
// before the other ranks know of it. A late write would then corrupt memory that is already used
// for something else. So each rank publishes on its control segment when it touches others' memory
// and when its own was given back:
// - A rank that touches publishes so first, and then checks whether it may.
// - A rank that gives back publishes so first, then ends its own device's work, and then waits for
//   ranks that still touch.
// So ranks that give back at the same time do not wait for each other. Opened by HostWindow;
// progress token holder only.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/memory/control_segment.h"

#include <kolo/error.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kolo {

class UsersMemory {
 public:
  /// `segments`: control segments of the world's partition, by rank; null for ranks of other hosts.
  /// `rank`: this rank, whose segment is not null.
  void open(int rank, std::vector<ControlSegment*> segments);
  void close();
  bool is_open() const { return own_ != nullptr; }

  /// This rank touches the memory of others' users as long as the object lives. Precondition:
  /// is_open().
  class Touch {
   public:
    explicit Touch(const UsersMemory& memory);
    ~Touch();
    Touch(const Touch&) = delete;
    Touch& operator=(const Touch&) = delete;

   private:
    std::atomic<std::uint64_t>& touches_;
  };
  /// This rank's device touches the memory of others' users, from before the work is enqueued until
  /// the device has finished it. Several objects may live at the same time and end in any order.
  class DeviceTouch {
   public:
    explicit DeviceTouch(UsersMemory& memory);
    ~DeviceTouch();
    DeviceTouch(const DeviceTouch&) = delete;
    DeviceTouch& operator=(const DeviceTouch&) = delete;

   private:
    UsersMemory& memory_;
    const std::uint64_t number_;
  };
  /// Call within a touch. True if `rank` (of this host) has given its users their memory back.
  bool has_given_back(int rank) const {
    return segments_[static_cast<std::size_t>(rank)]->gave_back.load(std::memory_order_seq_cst);
  }
  /// kAborted if has_given_back(rank).
  Status check(int rank) const;

  /// This rank has failed or shuts down. A rank that begins to touch from now on sees that it must
  /// not.
  void give_back();
  /// Blocks until no other rank touches this rank's memory any more. This takes as long as one step
  /// of a schedule plus the work already enqueued on the other rank's stream. Ends at the deadline
  /// if a process was stopped or killed during a touch. Preconditions: give_back() was called, and
  /// this rank touches nothing.
  void await_others(Deadline deadline) const;

 private:
  std::vector<ControlSegment*> segments_;
  ControlSegment* own_ = nullptr;
  std::vector<std::uint64_t> device_touches_;  ///< numbers of the unfinished ones, ascending
};

}  // namespace kolo
