#include "runtime/communicator/place_slots.h"

#include "runtime/communicator/board.h"

#include <atomic>
#include <cstdint>

namespace kolo {
namespace {

/// What a rank's board says of a set's slots. Sets' numbers never come back, so what it said of an
/// earlier set of the place is nothing to this one.
std::uint64_t word_of(std::uint32_t set, bool has_memory) {
  return std::uint64_t{set} << 1 | (has_memory ? 1U : 0U);
}

std::atomic<std::uint64_t>& word_on(const HostWindow& window, int rank, int place) {
  return board_in(window.board(rank, place)).slot_memory;
}

}  // namespace

PlaceSlots::PlaceSlots(const Communicator& communicator, HostWindow& window, int place,
                       const Log& log)
    : communicator_(communicator), window_(window), place_(place), log_(log) {}

void PlaceSlots::open() {
  if (!window_.covers(communicator_, place_)) return;
  opened_at_ = Clock::now();
  settled_ = usable_ = place_ == 0;  // the world's are a part of what was opened
  if (settled_) return;
  const Status status = window_.commit_slots(place_);
  if (!status.ok()) lack_ = status.error().message;
  word_on(window_, communicator_.world().rank(), place_)
      .store(word_of(communicator_.id(), status.ok()), std::memory_order_release);
}

std::optional<bool> PlaceSlots::said_by(int rank) const {
  const auto word = word_on(window_, rank, place_).load(std::memory_order_acquire);
  if (word == word_of(communicator_.id(), true)) return true;
  if (word == word_of(communicator_.id(), false)) return false;
  return std::nullopt;
}

bool PlaceSlots::settled() {
  if (settled_) return true;
  std::optional<int> lacking;
  for (const int rank : communicator_.ranks()) {
    const auto has_memory = said_by(rank);
    if (!has_memory) return false;
    if (!*has_memory && !lacking) lacking = rank;
  }
  settled_ = true;
  usable_ = !lacking;
  if (lacking == communicator_.world().rank()) {
    log_.warning(
        "process set {}: rank {} has no memory for its part of the window ({}); the set's "
        "operations take slower messages",
        communicator_.id(), *lacking, lack_);
  }
  return true;
}

std::vector<int> PlaceSlots::silent() const {
  std::vector<int> silent = communicator_.ranks();
  std::erase_if(silent, [this](int rank) { return said_by(rank).has_value(); });
  return silent;
}

}  // namespace kolo
