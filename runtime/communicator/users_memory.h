// UsersMemory: when a rank may touch the users' memory of its host's other ranks, which it has
// mapped: their arenas, of the host and of devices. After a failure users get their memory back
// although the other ranks know of no end, and what they would write there later would be someone
// else's by then. So each rank says on its board when it touches others' memory, and when its own
// has been given back: who touches says so first and then looks whether he may; who gives back says
// so first, then ends what its own device does, and then waits for those who touch. Ranks that give
// back at once so wait for no one who waits. Opened by HostWindow; token holder only.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/communicator/board.h"

#include <kolo/error.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kolo {

class UsersMemory {
 public:
  /// `boards` of the world's place, by rank: null of other hosts, but not of `rank`, this one.
  void open(int rank, std::vector<Board*> boards);
  void close();
  bool is_open() const { return own_ != nullptr; }

  /// This rank touches others' users' memory while it lives. Precondition: it is open.
  class Touch {
   public:
    explicit Touch(const UsersMemory& memory);
    ~Touch();
    Touch(const Touch&) = delete;
    Touch& operator=(const Touch&) = delete;

   private:
    std::atomic<std::uint64_t>& touches_;
  };
  /// The same of this rank's device, from before work is handed in until it is done there. Several
  /// live at a time, and end in any order.
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
  /// Asked within a touch: a rank of this host has given its users their memory back.
  bool has_given_back(int rank) const {
    return boards_[static_cast<std::size_t>(rank)]->gave_back.load(std::memory_order_seq_cst);
  }
  /// The same; kAborted if it has.
  Status check(int rank) const;

  /// This rank has failed, or shuts down: who touches its users' memory from now on sees that he
  /// must not.
  void give_back();
  /// Blocks until no other rank touches it any more, which takes as long as a step of a schedule,
  /// and what its device's stream has to do before; or until the deadline, where a process was
  /// stopped or killed within one. Preconditions: give_back(), and no touch of this rank.
  void await_others(Deadline deadline) const;

 private:
  std::vector<Board*> boards_;
  Board* own_ = nullptr;
  std::vector<std::uint64_t> device_touches_;  ///< that are not over, ascending
};

}  // namespace kolo
