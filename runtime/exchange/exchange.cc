#include "runtime/exchange/exchange.h"

#include "runtime/base/cache_line.h"
#include "runtime/base/check.h"
#include "runtime/base/overlap.h"
#include "runtime/base/rounding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace kolo {
namespace {

/// Looks at a flag; together they take longer than a peer's store takes to become visible.
constexpr int kLooks = 100;

/// Maps all pages of the memory, so that no call pays for their first use: the first hundred calls
/// of a size would otherwise take three times as long. Linux before 5.14 cannot.
void populate(std::span<std::byte> memory) {
  static_cast<void>(::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE));
}

}  // namespace

Exchange::Exchange(const Communicator& communicator, const RecentCalls& recent_calls,
                   HostWindow& window, const Device& device, Transport& transport,
                   ControlPlane& control_plane)
    : communicator_(communicator),
      checks_(communicator, recent_calls),
      window_(window),
      device_(device),
      control_plane_(control_plane),
      pair_(communicator, transport) {
  static_assert(sizeof(ControlSegment) <= HostWindow::kControlSegmentBytes);
}

void Exchange::open(int partition, ExchangeUse use) {
  if (!window_.covers(communicator_, partition)) {
    limits_ = limits_without_segments(communicator_.ranks().size(), use);
    return;
  }
  for (const int rank : communicator_.ranks()) {
    const std::span<std::byte> memory = window_.control_segment(rank, partition);
    populate(memory);
    segments_.push_back(&control_segment_in(memory));
  }
  buffers_.inputs.resize(segments_.size());
  buffers_.outputs.resize(segments_.size());
  buffers_.sources.resize(segments_.size());
  checks_.open(segments_);
  limits_ = exchange_limits(
      segments_.size(), communicator_.world().has_core_for_each_rank(communicator_.ranks()), use);
}

void Exchange::clear() {
  if (segments_.empty()) return;
  ControlSegment& segment = *segments_[own()];
  for (std::size_t i = 0; i < ControlSegment::kLines; ++i) {
    ControlSegment::Line& line = segment.line(i);
    for (auto* const number : {&line.flag, &line.number, &line.fingerprint})
      number->store(0, std::memory_order_release);
  }
  for (ControlSegment::Slot& slot : segment.slots) slot.summed.store(0, std::memory_order_release);
  segment.announced.store(0, std::memory_order_release);
}

bool Exchange::is_two_shot(const Request& request) const {
  if (depends_on_offsets(request)) return were_mapped_;
  return request.kind == OperationKind::kAllreduce && request.bytes() > limits_.one_shot;
}

OrderedCall Exchange::call_of(const Request& request) const {
  return {std::uint64_t{communicator_.id()} << kSetShift | (request.sequence + 1),
          call_fingerprint(request, communicator_)};
}

ControlSegment::Slot& Exchange::slot_of(std::size_t rank) const {
  return segments_[rank]->slots[slots_ % 2];
}

OrderedCall Exchange::awaited() const {
  const ControlSegment::Line& line = line_of(own());
  return {line.number.load(std::memory_order_relaxed),
          line.fingerprint.load(std::memory_order_relaxed)};
}

std::byte* Exchange::data_of(std::size_t rank) const {
  if (is_in_ring()) return segments_[rank]->ring + ring_.begin;
  if (runs_ahead_) return segments_[rank]->ahead[ahead_ % ControlSegment::kAheadLines].data;
  ControlSegment::Slot& slot = slot_of(rank);
  return request_.bytes() <= ControlSegment::kLargestInLine ? slot.in_line : slot.data;
}

const std::atomic<std::uint64_t>& Exchange::flag_of(std::size_t rank) const {
  return wait_.phase == Phase::kSums ? slot_of(rank).summed : line_of(rank).flag;
}

void Exchange::begin(const Request& request) {
  is_two_rank_ = limits_.take_two_rank(request.kind, request.bytes());
  KOLO_CHECK(!busy() && (is_two_rank_ || limits_.take(request.kind, request.bytes())));
  request_ = request;
  state_ = State::kRunning;
  if (is_two_rank_) {
    call_ = call_of(request);
    return pair_.begin({request.input, request.bytes()}, request.sequence, call_.fingerprint);
  }
  const bool ran_ahead = runs_ahead_;
  runs_ahead_ = is_rooted(request.kind) && request.bytes() <= ControlSegment::kLargestAhead;
  ++(runs_ahead_ ? ahead_ : slots_);
  two_shot_ = is_two_shot(request);
  if (is_in_ring()) take_from_ring();
  call_ = call_of(request);
  wait_.looks = 0;
  const bool stays_ahead = ran_ahead && runs_ahead_;
  if (unseen_ == 0 || (stays_ahead && unseen_ < kAhead)) return publish();
  wait_.phase = Phase::kRoom;
  if (stays_ahead) wait_.line = ahead_line(ahead_ - kAhead / 2);  // else that of the call before
  unseen_ = stays_ahead ? kAhead / 2 - 1 : 0;
  wait_.flag = awaited().flag();
  wait_.next = 0;
  wait_.end = segments_.size();
}

void Exchange::take_from_ring() {
  const std::size_t bytes = round_up(request_.bytes(), kCacheLine);
  ring_.begin = ring_.end + bytes <= sizeof(ControlSegment::ring) ? ring_.end : 0;
  ring_.end = ring_.begin + bytes;
}

void Exchange::publish() {
  wait_.phase = Phase::kInputs;
  wait_.line = runs_ahead_ ? ahead_line(ahead_) : slots_ % 2;
  wait_.flag = call_.flag();
  publish_input();
  wait_.next = 0;
  wait_.end = segments_.size();
  bool sees_all = true;
  if (is_rooted(request_.kind)) {
    if (gives_input()) {
      wait_.next = wait_.end;
      sees_all = false;
    } else if (request_.kind != OperationKind::kGather) {
      wait_.next = static_cast<std::size_t>(request_.root);
      wait_.end = wait_.next + 1;
      sees_all = segments_.size() == 2;
    }
  }
  unseen_ = sees_all ? 0 : unseen_ + 1;
  ring_sleepers();
}

Exchange::Range Exchange::own_part() const {
  const std::uint64_t part = request_.count / segments_.size();
  return {own() * part, (own() + 1) * part};
}

Exchange::Range Exchange::kept_range() const {
  if (two_shot_) {
    if (request_.prescale.is_identity()) return {share_begin(own()), share_begin(own() + 1)};
  } else if (request_.kind == OperationKind::kAlltoall ||
             request_.kind == OperationKind::kScatter) {
    return own_part();
  } else if (request_.kind == OperationKind::kReduceScatter) {
    if (reduces_input_of(own_part())) return own_part();
  }
  return {};
}

bool Exchange::gives_input() const {
  if (!is_rooted(request_.kind)) return true;
  return is_root() != (request_.kind == OperationKind::kGather);
}

bool Exchange::reduces_input_of(Range range) const {
  const std::size_t element = size_of(request_.type);
  return request_.prescale.is_identity() &&
         !are_shifted(request_.input + range.begin * element, request_.output,
                      (range.end - range.begin) * element);
}

void Exchange::publish_input() {
  if (publishes_offsets()) publish_offsets();
  const bool goes_to_segment = two_shot_
                                   ? offsets_.input == ControlSegment::BufferOffsets::kNowhere &&
                                         request_.bytes() <= limits_.copied
                                   : gives_input();
  if (goes_to_segment) {
    const Range kept = kept_range();
    copy_to_segment({0, kept.begin});
    copy_to_segment({kept.end, request_.count});
  }
  ControlSegment::Line& line = line_of(own());
  line.number.store(call_.number, std::memory_order_relaxed);
  line.fingerprint.store(call_.fingerprint, std::memory_order_relaxed);
  line.flag.store(wait_.flag, std::memory_order_release);
}

void Exchange::copy_to_segment(Range range) {
  const std::size_t at = range.begin * size_of(request_.type);
  device_.copy(request_.type, data_of(own()) + at, request_.input + at, range.end - range.begin,
               request_.prescale);
}

void Exchange::ring_sleepers() {
  for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
    if (rank == own() || !segments_[rank]->asleep.load(std::memory_order_relaxed)) continue;
    // Best effort: a rank that no message reaches soon looks again by itself.
    static_cast<void>(control_plane_.send(static_cast<int>(rank), MessageKind::kDoorbell, {}));
  }
}

bool Exchange::all_arrived() {
  for (; wait_.next < wait_.end; ++wait_.next) {
    if (arrived(wait_.next)) continue;
    if (++wait_.looks < kLooks) return false;
    status_ =
        checks_.check_waited_for(wait_.next, awaited(), line_of(wait_.next), flag_of(wait_.next));
    return !status_.ok();
  }
  return true;
}

bool Exchange::advance_two_rank() {
  if (!pair_.done()) return false;
  status_ = pair_.status();
  if (!status_.ok()) return true;
  pair_.combine(device_, request_.type, request_.op, request_.postscale, request_.output);
  state_ = State::kIdle;
  return true;
}

bool Exchange::adopt_two_rank(const Request& request) {
  if (!is_two_rank_ || state_ != State::kAbandoned || request.sequence != request_.sequence ||
      request.output != request_.output)
    return false;
  return adopt();
}

bool Exchange::advance() {
  if (is_two_rank_) return advance_two_rank();
  while (all_arrived()) {
    if (!status_.ok()) return true;
    switch (wait_.phase) {
      case Phase::kRoom:
        publish();
        continue;
      case Phase::kInputs:
        if (publishes_offsets()) status_ = find_buffers();
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
        wait_.phase = Phase::kSums;
        wait_.next = 0;
        ring_sleepers();
        continue;
      case Phase::kSums:
        fetch_sums();
        break;
    }
    state_ = State::kIdle;
    return true;
  }
  return false;
}

void Exchange::fetch_next_slot() const {
  if (runs_ahead_) {
    const ControlSegment::Line& line = segments_[own()]->line(ahead_line(ahead_ + 1));
    return fetch_to_write(reinterpret_cast<const std::byte*>(&line),
                          sizeof line + (gives_input() ? request_.bytes() : 0));
  }
  if (unseen_ > 0) return;
  const std::size_t bytes = request_.bytes();
  const ControlSegment::Slot& slot = segments_[own()]->slots[(slots_ + 1) % 2];
  fetch_to_write(reinterpret_cast<const std::byte*>(&slot.line));
  if (bytes > ControlSegment::kLargestInLine && bytes <= ControlSegment::kLargestInSlot)
    fetch_to_write(slot.data, bytes);
}

// Copies the own part first, in case it overlaps the output. The other parts come from control
// segments.
void Exchange::collect() {
  const std::size_t ranks = segments_.size();
  const std::size_t bytes = request_.bytes();
  const std::size_t part = bytes / ranks;
  const auto reduce = [&](Range range) {
    const std::size_t at = range.begin * size_of(request_.type);
    for (std::size_t rank = 0; rank < ranks; ++rank) buffers_.sources[rank] = data_of(rank) + at;
    if (reduces_input_of(range)) buffers_.sources[own()] = request_.input + at;
    device_.reduce(request_.type, request_.op, request_.output, buffers_.sources,
                   range.end - range.begin, request_.postscale);
  };
  const auto take = [&](const std::byte* own_part, std::size_t begin, std::size_t size) {
    std::byte* const to = request_.output + own() * size;
    if (to != own_part) std::memmove(to, own_part, size);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (rank != own()) std::memcpy(request_.output + rank * size, data_of(rank) + begin, size);
  };
  if (bytes == 0) return;
  switch (request_.kind) {
    case OperationKind::kAllreduce:
      return reduce({0, request_.count});
    case OperationKind::kReduceScatter:
      return reduce(own_part());
    case OperationKind::kBroadcast:
      if (!is_root()) {
        std::memcpy(request_.output, data_of(static_cast<std::size_t>(request_.root)), bytes);
      } else if (request_.output != request_.input) {
        std::memmove(request_.output, request_.input, bytes);
      }
      return;
    case OperationKind::kGather:
      if (!is_root()) return;
      return take(request_.input, 0, bytes);
    case OperationKind::kAllgather:
      return take(request_.input, 0, bytes);
    case OperationKind::kAlltoall:
      return take(request_.input + own() * part, own() * part, part);
    case OperationKind::kScatter: {
      const std::byte* const from =
          is_root() ? request_.input : data_of(static_cast<std::size_t>(request_.root));
      if (request_.output != from + own() * part)
        std::memmove(request_.output, from + own() * part, part);
      return;
    }
    case OperationKind::kBarrier:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      return;
  }
}

bool Exchange::fall_asleep() {
  if (!busy() || is_two_rank_ || wait_.next >= wait_.end) return true;
  asleep_ = true;
  std::atomic<bool>& asleep = segments_[own()]->asleep;
  asleep.store(true, std::memory_order_seq_cst);
  // A peer that missed this store has published before: its flag is visible within these looks.
  for (int i = 0; i < kLooks; ++i) {
    if (arrived(wait_.next)) return false;
  }
  return true;
}

Status Exchange::look_back() const {
  if (busy() || is_two_rank_ || unseen_ == 0) return {};
  for (std::size_t rank = 0; rank < segments_.size(); ++rank)
    KOLO_TRY(checks_.check_line(call_, rank, line_of(rank)));
  return {};
}

std::string Exchange::describe() const {
  if (is_two_rank_) {
    return fmt::format("{} of {} as call {}{} waits for rank {}", algorithm(),
                       to_text(call_.fingerprint), request_.sequence, communicator_.suffix(),
                       pair_.partner());
  }
  std::vector<int> missing;
  for (std::size_t rank = wait_.next; busy() && rank < wait_.end; ++rank) {
    if (!arrived(rank)) missing.push_back(communicator_.ranks()[rank]);
  }
  return fmt::format("{} of {} as call {}{} waits for rank{} {}", algorithm(),
                     to_text(call_.fingerprint), request_.sequence, communicator_.suffix(),
                     missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
}

void Exchange::wake_up() {
  if (!asleep_) return;
  asleep_ = false;
  segments_[own()]->asleep.store(false, std::memory_order_relaxed);
}

}  // namespace kolo
