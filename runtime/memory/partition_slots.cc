#include "runtime/memory/partition_slots.h"

#include <algorithm>
#include <charconv>

namespace kolo {
namespace {

// Message to the set's rank 0: kHas or kLacks. Message from rank 0: any of the three; kLacks and
// kLeft are followed by the world rank that lacks memory or has left.
constexpr char kHas = 'h';
constexpr char kLacks = 'l';
constexpr char kLeft = 'e';

}  // namespace

PartitionSlots::PartitionSlots(const Communicator& communicator, HostWindow& window, int partition,
                               const Log& log)
    : communicator_(communicator), window_(window), partition_(partition), log_(log) {}

/// True if the set spans several hosts, some host has several of its ranks, and the windows have
/// slots.
bool PartitionSlots::is_over_hosts() const {
  if (partition_ == HostWindow::kNoPartition || window_.slot_bytes_everywhere(partition_) == 0)
    return false;
  const HostLayout layout = communicator_.world().layout_of(communicator_.ranks());
  return layout.hosts() > 1 && layout.most_on_a_host() > 1;
}

bool PartitionSlots::has_neighbour() const {
  const World& world = communicator_.world();
  return std::any_of(communicator_.ranks().begin(), communicator_.ranks().end(), [&](int rank) {
    return rank != world.rank() && world.same_host(rank, world.rank());
  });
}

void PartitionSlots::open() {
  is_on_one_host_ = window_.covers(communicator_, partition_);
  if (!is_on_one_host_ && !is_over_hosts()) return;
  opened_at_ = Clock::now();
  settled_ = usable_ =
      partition_ == 0;  // the world's slots have memory since the window was opened
  if (settled_) return;
  const Status status = has_neighbour() ? window_.commit_slots(partition_) : Status();
  if (!status.ok()) lack_ = status.error().message;
  if (communicator_.rank() != 0) {
    to_tell_ = std::string(1, status.ok() ? kHas : kLacks);
    return;
  }
  words_.resize(static_cast<std::size_t>(communicator_.size()));
  words_.front() = status.ok();
  judge();  // the set may have one rank only
}

std::size_t PartitionSlots::bytes_over_hosts() const {
  return usable_ && !is_on_one_host_ ? window_.slot_bytes_everywhere(partition_) : 0;
}

void PartitionSlots::settle(std::optional<int> lacking) {
  settled_ = true;
  usable_ = !lacking;
  if (lacking == communicator_.world().rank()) {
    log_.warning(
        "process set {}: rank {} has no memory for its part of the window ({}); the set's "
        "operations take slower messages",
        communicator_.id(), *lacking, lack_);
  }
}

void PartitionSlots::judge() {
  std::optional<int> lacking;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (!words_[i]) return;
    if (!*words_[i] && !lacking) lacking = communicator_.ranks()[i];
  }
  settle(lacking);
  to_tell_ = lacking ? kLacks + std::to_string(*lacking) : std::string(1, kHas);
}

bool PartitionSlots::take_word(std::size_t rank, char kind) {
  if ((kind != kHas && kind != kLacks) || rank >= words_.size() || words_[rank]) return false;
  words_[rank] = kind == kHas;
  judge();
  return true;
}

bool PartitionSlots::take_verdict(char kind, std::optional<int> whom) {
  if (settled_ || (kind != kHas && !whom)) return false;
  if (kind == kLeft) {
    left_ = whom;
    return true;
  }
  if (kind != kHas && kind != kLacks) return false;
  settle(kind == kHas ? std::nullopt : whom);
  return true;
}

Status PartitionSlots::hear(int rank, std::string_view message) {
  const auto index = static_cast<std::size_t>(rank);
  const char kind = message.empty() ? '\0' : message.front();
  const char* const end = message.data() + message.size();
  std::optional<int> whom(0);
  if (message.size() < 2 || std::from_chars(message.data() + 1, end, *whom).ptr != end)
    whom.reset();
  const bool is_taken =
      communicator_.rank() == 0 ? take_word(index, kind) : rank == 0 && take_verdict(kind, whom);
  if (!is_taken) {
    return KOLO_ERROR(kInternal, "rank {}: unexpected or malformed message '{}' of rank {}{}",
                      communicator_.world().rank(), message, communicator_.ranks()[index],
                      communicator_.suffix());
  }
  return {};
}

void PartitionSlots::rank_left(int rank) {
  if (settled_ || left_ || words_.empty() || words_[static_cast<std::size_t>(rank)]) return;
  left_ = communicator_.ranks()[static_cast<std::size_t>(rank)];
  to_tell_ = kLeft + std::to_string(*left_);
}

std::vector<int> PartitionSlots::silent() const {
  if (settled_) return {};
  if (words_.empty()) return {communicator_.ranks().front()};
  std::vector<int> silent;
  for (std::size_t i = 0; i < words_.size(); ++i)
    if (!words_[i]) silent.push_back(communicator_.ranks()[i]);
  return silent;
}

}  // namespace kolo
