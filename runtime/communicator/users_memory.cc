#include "runtime/communicator/users_memory.h"

#include <thread>

namespace kolo {
namespace {

bool is_touching(std::uint64_t touches) { return (touches & 1) != 0; }

}  // namespace

void UsersMemory::open(int rank, std::vector<Board*> boards) {
  boards_ = std::move(boards);
  own_ = boards_[static_cast<std::size_t>(rank)];
}

void UsersMemory::close() {
  boards_.clear();
  own_ = nullptr;
}

// Dekker's way: of one who touches and one who gives back at once, at least one sees the other.
UsersMemory::Touch::Touch(const UsersMemory& memory) : touches_(memory.own_->touches) {
  touches_.fetch_add(1, std::memory_order_seq_cst);
}

UsersMemory::Touch::~Touch() { touches_.fetch_add(1, std::memory_order_release); }

void UsersMemory::give_back(Deadline deadline) {
  if (own_ == nullptr || own_->gave_back.exchange(true, std::memory_order_seq_cst)) return;
  for (const Board* const board : boards_) {
    if (board == nullptr || board == own_) continue;
    const std::uint64_t seen = board->touches.load(std::memory_order_seq_cst);
    // Whoever begins later sees that he must not.
    while (is_touching(seen) && board->touches.load(std::memory_order_acquire) == seen &&
           !deadline.expired())
      std::this_thread::yield();
  }
}

}  // namespace kolo
