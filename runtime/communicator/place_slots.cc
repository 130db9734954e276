#include "runtime/communicator/place_slots.h"

#include <algorithm>
#include <charconv>

namespace kolo {
namespace {

// A word is one of the first two; a verdict is one of the last three, with the rank of the world
// that lacks it or has left.
constexpr char kHas = 'h';
constexpr char kLacks = 'l';
constexpr char kLeft = 'e';

}  // namespace

PlaceSlots::PlaceSlots(const Communicator& communicator, HostWindow& window, int place,
                       const Log& log)
    : communicator_(communicator), window_(window), place_(place), log_(log) {}

/// Of several hosts, some with several of the ranks, whose windows have slots.
bool PlaceSlots::is_over_hosts() const {
  if (place_ == HostWindow::kNoPlace || window_.slot_bytes_everywhere(place_) == 0) return false;
  std::vector<int> hosts = communicator_.world().hosts_of(communicator_.ranks());
  std::sort(hosts.begin(), hosts.end());
  return hosts.front() != hosts.back() &&
         std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end();
}

bool PlaceSlots::has_neighbour() const {
  const World& world = communicator_.world();
  return std::any_of(communicator_.ranks().begin(), communicator_.ranks().end(), [&](int rank) {
    return rank != world.rank() && world.same_host(rank, world.rank());
  });
}

void PlaceSlots::open() {
  is_on_one_host_ = window_.covers(communicator_, place_);
  if (!is_on_one_host_ && !is_over_hosts()) return;
  opened_at_ = Clock::now();
  settled_ = usable_ = place_ == 0;  // the world's are a part of what was opened
  if (settled_) return;
  const Status status = has_neighbour() ? window_.commit_slots(place_) : Status();
  if (!status.ok()) lack_ = status.error().message;
  if (communicator_.rank() != 0) {
    to_tell_ = std::string(1, status.ok() ? kHas : kLacks);
    return;
  }
  words_.resize(static_cast<std::size_t>(communicator_.size()));
  words_.front() = status.ok();
  judge();  // there may be no others
}

std::size_t PlaceSlots::bytes_over_hosts() const {
  return usable_ && !is_on_one_host_ ? window_.slot_bytes_everywhere(place_) : 0;
}

void PlaceSlots::settle(std::optional<int> lacking) {
  settled_ = true;
  usable_ = !lacking;
  if (lacking == communicator_.world().rank()) {
    log_.warning(
        "process set {}: rank {} has no memory for its part of the window ({}); the set's "
        "operations take slower messages",
        communicator_.id(), *lacking, lack_);
  }
}

void PlaceSlots::judge() {
  std::optional<int> lacking;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (!words_[i]) return;
    if (!*words_[i] && !lacking) lacking = communicator_.ranks()[i];
  }
  settle(lacking);
  to_tell_ = lacking ? kLacks + std::to_string(*lacking) : std::string(1, kHas);
}

Status PlaceSlots::hear(int rank, std::string_view message) {
  const auto index = static_cast<std::size_t>(rank);
  const bool is_judge = communicator_.rank() == 0;
  const char kind = message.empty() ? '\0' : message.front();
  const char* const end = message.data() + message.size();
  int whom = 0;
  const bool has_rank =
      message.size() > 1 && std::from_chars(message.data() + 1, end, whom).ptr == end;
  if (is_judge && (kind == kHas || kind == kLacks) && index < words_.size() && !words_[index]) {
    words_[index] = kind == kHas;
    judge();
  } else if (!is_judge && rank == 0 && !settled_ && kind == kLeft && has_rank) {
    left_ = whom;
  } else if (!is_judge && rank == 0 && !settled_ &&
             (kind == kHas || (kind == kLacks && has_rank))) {
    settle(kind == kHas ? std::nullopt : std::optional(whom));
  } else {
    return KOLO_ERROR(kInternal, "rank {}: unexpected or malformed message '{}' of rank {}{}",
                      communicator_.world().rank(), message, communicator_.ranks()[index],
                      communicator_.suffix());
  }
  return {};
}

void PlaceSlots::rank_left(int rank) {
  if (settled_ || left_ || words_.empty() || words_[static_cast<std::size_t>(rank)]) return;
  left_ = communicator_.ranks()[static_cast<std::size_t>(rank)];
  to_tell_ = kLeft + std::to_string(*left_);
}

std::vector<int> PlaceSlots::silent() const {
  if (settled_) return {};
  if (words_.empty()) return {communicator_.ranks().front()};
  std::vector<int> silent;
  for (std::size_t i = 0; i < words_.size(); ++i)
    if (!words_[i]) silent.push_back(communicator_.ranks()[i]);
  return silent;
}

}  // namespace kolo
