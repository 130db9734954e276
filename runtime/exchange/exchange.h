// Exchange: runs small in-order calls among ranks that map each other's windows. Every rank writes
// its input and a flag to its own control segment, then reads what it needs from all control
// segments. This takes one hop, and one cache line per rank if flag and data fit into it. (The flat
// exchange of shared-memory MPIs: Graham and Shipman, "MPI support for multi-core architectures",
// EuroPVM/MPI 2008.) An all-reduce:
//
//   rank 0                      rank 1
//   slot[k % 2] ← in0, flag k   slot[k % 2] ← in1, flag k
//   wait for rank 1's flag k    wait for rank 0's flag k
//   out ← slot 0 + slot 1       out ← slot 0 + slot 1
//
// Larger all-reduces take two hops (two-shot): each rank sums one share. It publishes the shares
// that others sum on its control segment. It writes the sum of its own share to its output and,
// beside a second flag, to its slot, from where the others copy it. Memory in the arena, which all
// ranks map, is read and written in place: beside its flag each rank publishes its buffer offsets.
//
// - All-reduces too large for the control segments take two hops if all ranks' memory lies in the
//   arena. Otherwise all ranks leave the call to a schedule, and try none for some calls.
// - All-reduces of some KiB take two hops if all ranks' memory lay there in the previous call of
//   such a size. Where ranks wait for cores, only larger ones do, and only in place.
// - Other kinds differ in what ranks read from the control segments. In a broadcast or scatter,
//   ranks wait only for the root's flag, and the root for none. In a gather, only the root waits.
//
// Cache lines that move between cores bound small calls. After a call of up to 4 KiB, a rank
// prefetches the next slot's lines, which the others have just read. Data that no other rank needs
// is not copied. Larger inputs are copied in one piece: memcpy() of some KiB takes the lines from
// other cores without reading them. Lines that have left the first-level caches move faster, so
// inputs of more than 4 KiB go to a ring behind the slots, which is larger than those caches.
//
// Two slots are enough. A rank raises flag k+1 after it has read what it needs of slots k, and
// writes its slot for k+2 after it has seen every flag k+1. Most calls wait for these flags anyway;
// after a call with a root, the next call does. So flags are at most one call apart, and an input
// in the ring never overwrites that of the previous call. Sums are in order of rank, so bitwise
// equal on all ranks.
//
// Calls with a root and few bytes run further ahead of each other: then ranks that share a core
// take turns once in many calls. They have lines of their own. A rank that has published kAhead of
// them in a row, and has seen no flags of the others, waits for all flags of one in their middle.
// So no rank overwrites a line that another one still reads or waits for.
//
// Calls too large for the exchange are announced on the control segment. A rank that has waited for
// a while checks whether the other rank is in another call of the same number: then ranks are out
// of step.
//
// Two ranks without windows (on two hosts, or on a host that has none) run the smallest all-reduces
// by messages (TwoRankExchange). Only callers that wait use it; other callers' operations send the
// same messages.
//
// An exchange is not a Schedule: starting a schedule costs more than a whole exchange. One runs at
// a time in each process set, and every rank runs the same ones in the same order. Each set has its
// own control segments, so a set that waits holds nothing that another set needs. Token holder
// only. Its protocols share slots, flags and waits, hence one class with many members and methods.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/device/device.h"
#include "runtime/exchange/call_checks.h"
#include "runtime/exchange/two_rank_exchange.h"
#include "runtime/memory/control_segment.h"
#include "runtime/memory/host_window.h"
#include "runtime/planning/exchange_limits.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class Exchange {
 public:
  /// Position of the process set's number in OrderedCall::number; the call's number is below it.
  static constexpr int kSetShift = CallChecks::kSetShift;
  static constexpr std::uint32_t kLastSet = (1U << (64 - kSetShift)) - 2;
  /// Number of the process set of Runtime::choose_exchange().
  static constexpr std::uint32_t kTrialSet = kLastSet + 1;

  struct Request {
    OperationKind kind = OperationKind::kAllreduce;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    int root = 0;  ///< rank of the communicator, for a kind that is_rooted(); else 0
    Scale prescale = {};
    Scale postscale = {};
    const std::byte* input = nullptr;  ///< unused by a scatter's other ranks than the root
    /// May be the input. May also overlap it, except for an all-reduce. Unused by a gather's other
    /// ranks than the root.
    std::byte* output = nullptr;
    /// Elements of the input, of a scatter the root's; for alltoall, reduce-scatter and scatter a
    /// multiple of the number of ranks.
    std::uint64_t count = 0;
    std::uint64_t sequence = 0;  ///< number of the in-order call
    std::uint64_t before = 0;    ///< CallHistory::bits()

    std::size_t bytes() const { return count * size_of(type); }
  };

  Exchange(const Communicator& communicator, const RecentCalls& recent_calls, HostWindow& window,
           const Device& device, Transport& transport, ControlPlane& control_plane);

  /// Called once the windows are open. Without a partition in the windows, a set can only use the
  /// two-rank exchange.
  void open(int partition, ExchangeUse use);

  /// Which calls the exchange carries; the same on every rank.
  const ExchangeLimits& limits() const { return limits_; }
  /// Calls that begin from now on have these limits. Every rank sets them between the same calls.
  /// Preconditions: opened with control segments, not busy().
  void set_limits(const ExchangeLimits& limits) { limits_ = limits; }
  /// The control segments of all ranks, by rank; empty without windows.
  const std::vector<ControlSegment*>& segments() const { return segments_; }
  /// Clears what this rank has published. Afterwards another process set of the same ranks may use
  /// the same partition. Precondition: no rank has a call under way here.
  void clear();
  /// The latest request is a two-rank exchange, which Transport::progress() moves.
  bool is_two_rank() const { return is_two_rank_; }

  /// Whether to try a request that limits() take. False: leave it to a schedule. The same on every
  /// rank. Precondition: all earlier calls that the exchange carries are over.
  bool tries(const Request& request) const {
    return request.kind != OperationKind::kAllreduce || request.bytes() <= limits_.copied ||
           request.sequence >= retry_.next;
  }
  /// Algorithm of the latest request: "one_shot", "two_shot" or "two_rank_exchange".
  std::string_view algorithm() const { return algorithm_of(two_shot_); }
  /// Algorithm of a request that would begin now.
  std::string_view algorithm(const Request& request) const {
    return algorithm_of(is_two_shot(request));
  }
  /// The fingerprint that must be the same on all ranks.
  static std::uint64_t call_fingerprint(const Request& request, const Communicator& communicator) {
    // The root as a rank of the world, as in messages.
    const int root = communicator.ranks()[static_cast<std::size_t>(request.root)];
    return kolo::call_fingerprint(request.kind, request.type, request.op, root, request.count,
                                  request.before);
  }
  /// Fingerprint of the latest request.
  std::uint64_t fingerprint() const { return call_.fingerprint; }
  /// A request has begun and is not done.
  bool busy() const { return state_ == State::kRunning || state_ == State::kAbandoned; }

  /// Publishes the input. If the slot is still in use, waits for it in advance(); a two-rank
  /// exchange sends the input instead. The memory must last until advance() has returned true.
  /// Preconditions: not busy(); limits().take() and tries(), or limits().take_two_rank(), and then
  /// no prescale.
  void begin(const Request& request);
  /// Goes on; true when nothing is left to wait for. Then the output is written, or the call is
  /// declined(), or status() is a failure and the exchange stays busy(). Precondition: busy().
  bool advance();
  const Status& status() const { return status_; }
  /// All ranks have left the latest call to a schedule.
  bool declined() const { return state_ == State::kDeclined; }

  /// The caller leaves a running exchange to whoever adopts it. Precondition: busy().
  void abandon() { state_ = State::kAbandoned; }
  /// Takes over an abandoned exchange; false if there is none.
  bool adopt() {
    if (state_ != State::kAbandoned) return false;
    state_ = State::kRunning;
    return true;
  }
  /// Takes over an abandoned two-rank exchange if it is this call.
  bool adopt_two_rank(const Request& request);

  /// Announces on the control segment a call that this rank begins without the exchange. Does
  /// nothing without control segments.
  OrderedCall announce(const Request& request) { return checks_.announce(call_of(request)); }
  /// Compares an announced call with those of the ranks from `next` on. True once all ranks have
  /// made the same call. kMismatch names both calls.
  Result<bool> compare(const OrderedCall& call, std::size_t& next) const {
    return checks_.compare(call, next);
  }

  /// kMismatch if another rank has made another call in place of the last exchange. Needed after an
  /// exchange that did not wait for all ranks, as one with a root.
  Status look_back() const;

  /// The driving thread calls both around a block: a peer that publishes meanwhile sends a doorbell
  /// message. fall_asleep() returns false if the awaited flag has already arrived.
  bool fall_asleep();
  void wake_up();

  /// For stall reports: which ranks the exchange waits for.
  std::string describe() const;

 private:
  /// How many calls a rank publishes whose flags it has not seen, at most.
  static constexpr std::uint64_t kAhead = ControlSegment::kAheadLines * 2 / 3;
  /// begin() → kRunning → kIdle, or → kDeclined: left to a schedule. kRunning ↔ kAbandoned: its
  /// caller has left it, and an operation adopts it.
  enum class State : std::uint8_t { kIdle, kRunning, kAbandoned, kDeclined };
  /// What the exchange waits for: a free slot, the inputs, or the sums of the shares.
  enum class Phase : std::uint8_t { kRoom, kInputs, kSums };
  std::string_view algorithm_of(bool two_shot) const {
    if (segments_.empty()) return "two_rank_exchange";
    return two_shot ? "two_shot" : "one_shot";
  }
  bool is_two_shot(const Request& request) const;
  bool depends_on_offsets(const Request& request) const {
    return limits_.depends_on_arena(request.kind, request.bytes());
  }
  bool publishes_offsets() const { return two_shot_ || depends_on_offsets(request_); }
  /// The input on the control segment lies in the ring, not in the slot.
  bool is_in_ring() const {
    return request_.bytes() > ControlSegment::kLargestInSlot && request_.bytes() <= limits_.staged;
  }
  std::size_t own() const { return static_cast<std::size_t>(communicator_.rank()); }
  OrderedCall call_of(const Request& request) const;
  /// The line of the call of this number among those that run ahead.
  static std::size_t ahead_line(std::uint64_t number) {
    return 2 + number % ControlSegment::kAheadLines;
  }
  /// The line of a rank that this phase looks at.
  ControlSegment::Line& line_of(std::size_t rank) const {
    return segments_[rank]->line(wait_.line);
  }
  ControlSegment::Slot& slot_of(std::size_t rank) const;
  std::byte* data_of(std::size_t rank) const;
  /// A rank's flag that this phase waits for.
  const std::atomic<std::uint64_t>& flag_of(std::size_t rank) const;
  /// The call whose flags this phase waits for.
  OrderedCall awaited() const;
  bool arrived(std::size_t rank) const {
    return flag_of(rank).load(std::memory_order_acquire) == wait_.flag;
  }
  bool advance_two_rank();
  /// Whether all ranks that this phase waits for have arrived, or status_ is set.
  bool all_arrived();
  /// Elements of the share that a rank sums begin here; rank size() stands for their end.
  std::uint64_t share_begin(std::size_t rank) const;
  /// Allocates the input's part of the ring.
  void take_from_ring();
  void publish();
  void publish_input();
  /// A range of the input's elements.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  /// Alltoall, reduce-scatter and scatter: the part of the input that this rank takes itself.
  Range own_part() const;
  /// The part of the input that only this rank reads; it is not published.
  Range kept_range() const;
  /// Whether this rank's input has data for other ranks.
  bool gives_input() const;
  bool is_root() const { return request_.root == communicator_.rank(); }
  /// Whether this rank reduces its own input from user memory, not from the control segment.
  bool reduces_input_of(Range range) const;
  /// Copies to the own control segment, prescaled.
  void copy_to_segment(Range range);
  // The two-shot (exchange_two_shot.cc).
  /// Publishes the buffer offsets of this rank's input and output.
  void publish_offsets();
  /// Finds all ranks' buffers from the published offsets.
  Status find_buffers();
  bool all_mapped() const;
  /// The call is too large for the control segments, and some rank's memory is not mapped.
  bool must_decline() const;
  void decline();
  Status publish_sum();
  void fetch_sums();
  /// Reads what this rank needs from all inputs.
  void collect();
  /// Prefetches the next exchange's slot for writing, as many lines as this call has used. The
  /// other ranks have read that slot, so their caches give the lines up before the next call needs
  /// them.
  void fetch_next_slot() const;
  void ring_sleepers();

  /// What the running exchange waits for.
  struct Wait {
    Phase phase = Phase::kInputs;
    std::size_t line = 0;    ///< where the flag comes, unless it is that of a sum
    std::uint64_t flag = 0;  ///< flag of this phase
    std::size_t next = 0;    ///< first rank that has not been seen in this phase
    std::size_t end = 0;     ///< end of the ranks to see in this phase
    int looks = 0;           ///< unsuccessful looks at flags
  };
  /// When a call above limits_.copied is tried again after a declined one.
  struct Retry {
    std::uint64_t next = 0;   ///< first call to be tried
    std::uint64_t pause = 1;  ///< calls to skip after the next declined one
  };
  /// Where the input lies in the ring; the same on all control segments.
  struct RingRange {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// Two-shot, by rank: its memory as mapped here; null if unmapped.
  struct Buffers {
    std::vector<std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
  };

  const Communicator& communicator_;
  CallChecks checks_;
  HostWindow& window_;
  const Device& device_;
  ControlPlane& control_plane_;
  TwoRankExchange pair_;
  std::vector<ControlSegment*> segments_;  ///< by rank; empty without windows
  ExchangeLimits limits_;

  State state_ = State::kIdle;
  Status status_;
  Request request_;
  OrderedCall call_;          ///< the running one, or the latest
  std::uint64_t slots_ = 0;   ///< exchanges so far that had slots
  std::uint64_t ahead_ = 0;   ///< exchanges so far that ran ahead
  std::uint64_t unseen_ = 0;  ///< the latest ones that not all ranks are known to have published
  Wait wait_;
  Retry retry_;
  RingRange ring_;
  Buffers buffers_;
  ControlSegment::BufferOffsets offsets_;  ///< buffer offsets of this rank in the running exchange
  bool is_two_rank_ = false;
  bool runs_ahead_ = false;   ///< the running exchange has a line of those that run ahead
  bool two_shot_ = false;     ///< the running exchange takes two hops
  bool were_mapped_ = false;  ///< all_mapped() in the latest call with depends_on_offsets()
  bool asleep_ = false;
};

}  // namespace kolo
