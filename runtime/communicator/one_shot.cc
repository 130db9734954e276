#include "runtime/communicator/one_shot.h"

#include "runtime/base/cache_line.h"
#include "runtime/base/check.h"
#include "runtime/base/overlap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace kolo {
namespace {

/// Bytes of all inputs together, since every rank reads them all: with more it pays to divide the
/// sum among the ranks, and soon if there are more than two and none waits for a core, to which a
/// second hop costs more.
constexpr std::size_t kBytesOfAllRanks = 128 << 10;
constexpr std::size_t kBytesOfRanksWithCores = 32 << 10;
/// Looks at a flag: longer than a store of a peer takes to become visible.
constexpr int kLooks = 100;

}  // namespace

OneShot::OneShot(const Communicator& communicator, const RecentCalls& recent_calls,
                 HostWindow& window, const Device& device, Transport& transport,
                 ControlPlane& control_plane)
    : communicator_(communicator),
      recent_calls_(recent_calls),
      window_(window),
      device_(device),
      control_plane_(control_plane),
      pair_(communicator, transport) {
  static_assert(sizeof(Board) <= HostWindow::kBoardBytes);
}

void OneShot::open(int place, bool allreduces) {
  if (!window_.covers(communicator_, place)) {
    trades_ = allreduces && communicator_.size() == 2;
    return;
  }
  allreduces_ = allreduces;
  for (const int rank : communicator_.ranks())
    boards_.push_back(&board_in(window_.board(rank, place)));
  inputs_.resize(boards_.size());
  outputs_.resize(boards_.size());
  sources_.resize(boards_.size());
  const bool have_cores = communicator_.world().has_core_for_each_rank(communicator_.ranks());
  has_cores_ = boards_.size() > 1 && have_cores;
  const std::size_t all =
      boards_.size() > 2 && have_cores ? kBytesOfRanksWithCores : kBytesOfAllRanks;
  largest_one_shot_ = std::min(Board::kLargest, all / boards_.size());
  largest_ = boards_.size() > 1 ? Board::kLargest : largest_one_shot_;
  largest_mapped_ = boards_.size() > 1 ? kLargestMapped : largest_one_shot_;
}

bool OneShot::takes(ExchangeKind kind, std::size_t input_bytes) const {
  if (boards_.empty()) return false;
  switch (kind) {
    case ExchangeKind::kAllgather:
      return input_bytes <= largest_ / boards_.size();
    case ExchangeKind::kAllreduce:
      return allreduces_ && input_bytes <= largest_mapped_;
    case ExchangeKind::kBroadcast:
    case ExchangeKind::kAlltoall:
    case ExchangeKind::kReduceScatter:
    case ExchangeKind::kBarrier:
      break;
  }
  return input_bytes <= largest_;
}

bool OneShot::is_two_shot(const Request& request) const {
  if (depends_on_places(request)) return were_mapped_;
  return request.kind == ExchangeKind::kAllreduce && request.bytes() > largest_one_shot_;
}

OrderedCall OneShot::call_of(const Request& request) const {
  return {std::uint64_t{communicator_.id()} << kSetShift | (request.sequence + 1),
          what_of(request, communicator_)};
}

Board::Slot& OneShot::slot_of(std::size_t rank) const {
  const std::uint64_t exchange = phase_ == Phase::kRoom ? exchange_ - 1 : exchange_;
  return boards_[rank]->slots[exchange % 2];
}

std::byte* OneShot::data_of(std::size_t rank) const {
  if (is_in_ring()) return boards_[rank]->ring + ring_at_;
  Board::Slot& slot = slot_of(rank);
  return request_.bytes() <= Board::kLargestInLine ? slot.line.data : slot.data;
}

std::uint64_t OneShot::flag_of(std::size_t rank) const {
  const Board::Slot& slot = slot_of(rank);
  const auto& flag = phase_ == Phase::kSums ? slot.summed : slot.line.flag;
  return flag.load(std::memory_order_acquire);
}

void OneShot::begin(const Request& request) {
  is_trade_ = trades(request.kind, request.bytes());
  KOLO_CHECK(!busy_ && (is_trade_ || takes(request.kind, request.bytes())));
  request_ = request;
  declined_ = false;
  if (is_trade_) {
    call_ = call_of(request);
    busy_ = true;
    return pair_.begin({request.input, request.bytes()}, request.sequence, call_.what);
  }
  ++exchange_;
  two_shot_ = is_two_shot(request);
  if (is_in_ring()) take_from_ring();
  previous_ = call_;
  call_ = call_of(request);
  busy_ = true;
  looks_ = 0;
  if (all_seen_) return publish();
  phase_ = Phase::kRoom;
  awaited_ = previous_.flag();
  next_ = 0;
  end_ = boards_.size();
}

void OneShot::take_from_ring() {
  const std::size_t bytes = (request_.bytes() + kCacheLine - 1) / kCacheLine * kCacheLine;
  ring_at_ = ring_end_ + bytes <= sizeof(Board::ring) ? ring_end_ : 0;
  ring_end_ = ring_at_ + bytes;
}

void OneShot::publish() {
  phase_ = Phase::kInputs;
  awaited_ = call_.flag();
  publish_input();
  next_ = 0;
  end_ = boards_.size();
  if (request_.kind == ExchangeKind::kBroadcast) {
    const auto root = static_cast<std::size_t>(request_.root);
    next_ = root == own() ? end_ : root;
    end_ = root == own() ? end_ : root + 1;
    all_seen_ = root != own() && boards_.size() == 2;
  } else {
    all_seen_ = true;
  }
  ring_sleepers();
}

OneShot::Range OneShot::own_part() const {
  const std::uint64_t part = request_.count / boards_.size();
  return {own() * part, (own() + 1) * part};
}

OneShot::Range OneShot::kept_range() const {
  if (two_shot_) {
    if (request_.prescale.is_identity()) return {share_begin(own()), share_begin(own() + 1)};
  } else if (request_.kind == ExchangeKind::kAlltoall) {
    return own_part();
  } else if (request_.kind == ExchangeKind::kReduceScatter) {
    if (reduces_input_of(own_part())) return own_part();
  }
  return {};
}

bool OneShot::reduces_input_of(Range range) const {
  const std::size_t element = size_of(request_.type);
  return request_.prescale.is_identity() &&
         !are_shifted(request_.input + range.begin * element, request_.output,
                      (range.end - range.begin) * element);
}

void OneShot::publish_input() {
  if (says_places()) publish_place();
  const bool goes_onto_board =
      two_shot_
          ? places_.input == Board::Places::kNowhere && request_.bytes() <= largest_
          : request_.kind != ExchangeKind::kBroadcast || request_.root == communicator_.rank();
  if (goes_onto_board) {
    const Range kept = kept_range();
    copy_onto_board({0, kept.begin});
    copy_onto_board({kept.end, request_.count});
  }
  Board::Line& line = slot_of(own()).line;
  line.number.store(call_.number, std::memory_order_relaxed);
  line.what.store(call_.what, std::memory_order_relaxed);
  line.flag.store(awaited_, std::memory_order_release);
}

void OneShot::copy_onto_board(Range range) {
  const std::size_t at = range.begin * size_of(request_.type);
  device_.copy(request_.type, data_of(own()) + at, request_.input + at, range.end - range.begin,
               request_.prescale);
}

void OneShot::ring_sleepers() {
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    if (rank == own() || !boards_[rank]->asleep.load(std::memory_order_relaxed)) continue;
    // Whom no message reaches looks again by itself, soon.
    static_cast<void>(control_plane_.send(static_cast<int>(rank), MessageKind::kDoorbell, {}));
  }
}

bool OneShot::all_arrived() {
  for (; next_ < end_; ++next_) {
    if (arrived(next_)) continue;
    if (++looks_ < kLooks) return false;
    status_ = check_waited_for(next_);
    return !status_.ok();
  }
  return true;
}

bool OneShot::advance_trade() {
  if (!pair_.done()) return false;
  status_ = pair_.status();
  if (!status_.ok()) return true;
  pair_.combine(device_, request_.type, request_.op, request_.postscale, request_.output);
  busy_ = false;
  return true;
}

bool OneShot::adopt_trade(const Request& request) {
  if (!is_trade_ || !abandoned_ || request.sequence != request_.sequence ||
      request.output != request_.output)
    return false;
  return adopt();
}

bool OneShot::advance() {
  if (is_trade_) return advance_trade();
  while (all_arrived()) {
    if (!status_.ok()) return true;
    switch (phase_) {
      case Phase::kRoom:
        publish();
        continue;
      case Phase::kInputs:
        if (says_places()) status_ = find_places();
        if (!status_.ok()) return true;
        if (!two_shot_) {
          collect();
          fetch_next_slot();
          break;
        }
        if (must_decline()) {
          decline();
          return true;
        }
        status_ = publish_sum();
        if (!status_.ok()) return true;
        phase_ = Phase::kSums;
        next_ = 0;
        ring_sleepers();
        continue;
      case Phase::kSums:
        fetch_sums();
        break;
    }
    busy_ = false;
    return true;
  }
  return false;
}

void OneShot::fetch_next_slot() const {
  if (!all_seen_) return;
  const std::size_t bytes = request_.bytes();
  const Board::Slot& slot = boards_[own()]->slots[(exchange_ + 1) % 2];
  fetch_to_write(reinterpret_cast<const std::byte*>(&slot.line));
  if (bytes > Board::kLargestInLine && bytes <= Board::kLargestInSlot)
    fetch_to_write(slot.data, bytes);
}

// The own part first, whatever overlaps there: the others' come from their boards.
void OneShot::collect() {
  const std::size_t ranks = boards_.size();
  const std::size_t bytes = request_.bytes();
  const std::size_t part = bytes / ranks;
  const auto reduce = [&](Range range) {
    const std::size_t at = range.begin * size_of(request_.type);
    for (std::size_t rank = 0; rank < ranks; ++rank) sources_[rank] = data_of(rank) + at;
    if (reduces_input_of(range)) sources_[own()] = request_.input + at;
    device_.reduce(request_.type, request_.op, request_.output, sources_, range.end - range.begin,
                   request_.postscale);
  };
  const auto take = [&](const std::byte* own_part, std::size_t begin, std::size_t size) {
    std::byte* const to = request_.output + own() * size;
    if (to != own_part) std::memmove(to, own_part, size);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (rank != own()) std::memcpy(request_.output + rank * size, data_of(rank) + begin, size);
  };
  if (bytes == 0) return;
  switch (request_.kind) {
    case ExchangeKind::kAllreduce:
      return reduce({0, request_.count});
    case ExchangeKind::kReduceScatter:
      return reduce(own_part());
    case ExchangeKind::kBroadcast:
      if (request_.root != communicator_.rank()) {
        std::memcpy(request_.output, data_of(static_cast<std::size_t>(request_.root)), bytes);
      } else if (request_.output != request_.input) {
        std::memmove(request_.output, request_.input, bytes);
      }
      return;
    case ExchangeKind::kAllgather:
      return take(request_.input, 0, bytes);
    case ExchangeKind::kAlltoall:
      return take(request_.input + own() * part, own() * part, part);
    case ExchangeKind::kBarrier:
      return;
  }
}

bool OneShot::fall_asleep() {
  if (!busy_ || is_trade_ || next_ >= end_) return true;
  asleep_ = true;
  std::atomic<bool>& asleep = boards_[own()]->asleep;
  asleep.store(true, std::memory_order_seq_cst);
  // A peer that did not see this yet has published before.
  for (int i = 0; i < kLooks; ++i) {
    if (arrived(next_)) return false;
  }
  return true;
}

void OneShot::wake_up() {
  if (!asleep_) return;
  asleep_ = false;
  boards_[own()]->asleep.store(false, std::memory_order_relaxed);
}

}  // namespace kolo
