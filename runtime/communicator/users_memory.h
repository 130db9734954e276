// UsersMemory: when a rank may touch the users' memory of its host's other ranks, which it has
// mapped: their arenas. After a failure users get their memory back although the other ranks know
// of no end, and what they would write there later would be someone else's by then. So each rank
// says on its board when it touches others' memory, and when its own has been given back: who
// touches says so first and then looks whether he may; who gives back says so first and then waits
// for those who touch. Opened by HostWindow; token holder only.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/communicator/board.h"

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
  /// Asked within a Touch: a rank of this host has given its users their memory back.
  bool has_given_back(int rank) const {
    return boards_[static_cast<std::size_t>(rank)]->gave_back.load(std::memory_order_seq_cst);
  }

  /// This rank has failed, or shuts down. Blocks until no other rank touches its users' memory nor
  /// will, which takes as long as a step of a schedule; or until the deadline, where a process was
  /// stopped or killed within one.
  void give_back(Deadline deadline);

 private:
  std::vector<Board*> boards_;
  Board* own_ = nullptr;
};

}  // namespace kolo
