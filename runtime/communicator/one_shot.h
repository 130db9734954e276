// OneShot: the ordered calls of a few bytes among ranks that map each other's windows. Every rank
// writes its input beside a flag on its own board and takes what it wants from all boards itself:
// one hop, and one cache line a rank where flag and data fit into it. (The flat exchange of
// shared-memory MPIs: Graham and Shipman, "MPI support for multi-core architectures", EuroPVM/MPI
// 2008.) An all-reduce:
//
//   rank 0                      rank 1
//   slot[k % 2] ← in0, flag k   slot[k % 2] ← in1, flag k
//   wait for rank 1's flag k    wait for rank 0's flag k
//   out ← slot 0 + slot 1       out ← slot 0 + slot 1
//
// With more bytes it takes two hops, and each rank sums a share (two-shot): what others sum goes
// onto the board; the sum of the own share goes into the output and, beside a second flag, into the
// slot, from where the others fetch it. What lies in the arena, which all have mapped, is read and
// written there instead: beside its flag each rank says where. All-reduces that are too large for
// the slots go this way if all ranks' memory lies there; when they see that it does not, all leave
// the call to a schedule, and do not try again for some calls. All-reduces of some KiB take two
// hops, too, when all ranks' memory lay there in the call of such a size before; where ranks wait
// for cores, larger ones in place alone. The other kinds differ in what is taken from the boards;
// of a broadcast, ranks wait for the root's flag alone, and the root for nobody's.
//
// Small calls are bound by cache lines that go from core to core. So a rank asks for the lines of
// the next slot, which the others have just read, when it is done with a call of up to a KiB. A
// larger input goes onto the board in one piece: memcpy() of some KiB takes the lines from the
// others without reading them. What no other rank wants of it stays where it is. Lines that have
// left the first-level caches move faster. So inputs of more than a KiB do not lie in the slots but
// go round in a ring behind them, which is larger than first-level caches are.
//
// Two slots are enough: a rank raises its flag k+1 after it has read all that it wants of slots k,
// and writes its k+2nd once it has seen every flag k+1: most calls have seen them anyway, after a
// broadcast the next call looks. So flags are never more than one call apart; and in the ring, what
// is written meets nothing of the call before. Sums are in order of rank, so bitwise equal
// everywhere.
//
// Calls that are too large for it are announced on the board, so that ranks that are out of step
// find out: who has waited for a while looks whether the other is in another call of that number.
//
// Two ranks without windows (on two hosts, or on one that has none) trade the smallest all-reduces
// by messages (PairExchange); only callers that wait do, the others' operations send the same.
//
// It is no Schedule: starting a schedule alone costs more than all of it. One runs at a time in
// each process set, every rank runs the same ones in the same order, and each set has boards of its
// own: what waits in one set takes nothing that another one needs. Token holder only.
#pragma once

#include "runtime/communicator/board.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/communicator/host_window.h"
#include "runtime/communicator/pair_exchange.h"
#include "runtime/communicator/recent_calls.h"
#include "runtime/device/device.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class OneShot {
 public:
  /// Bytes of the largest all-reduce on memory that all ranks have mapped.
  static constexpr std::size_t kLargestMapped = 4 << 20;
  /// And of the least that is faster in two hops; where ranks wait for cores, in place alone.
  static constexpr std::size_t kLeastMapped = 4 << 10;
  static constexpr std::size_t kLeastWithoutCores = 16 << 10;
  /// Of a set's number, above the calls' in what boards carry.
  static constexpr int kSetShift = 44;
  static constexpr std::uint32_t kLastSet = (1U << (64 - kSetShift)) - 1;

  struct Request {
    ExchangeKind kind = ExchangeKind::kAllreduce;
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    int root = 0;  ///< of a broadcast, else 0; the communicator's rank
    Scale prescale = {};
    Scale postscale = {};
    const std::byte* input = nullptr;
    /// May be the input, and may overlap it, but of an all-reduce.
    std::byte* output = nullptr;
    /// Elements of the input: of an alltoall and a reduce-scatter a multiple of the ranks.
    std::uint64_t count = 0;
    std::uint64_t sequence = 0;  ///< which call of the ordered door it is
    std::uint64_t before = 0;    ///< CallHistory::bits()

    std::size_t bytes() const { return count * size_of(type); }
  };

  OneShot(const Communicator& communicator, const RecentCalls& recent_calls, HostWindow& window,
          const Device& device, Transport& transport, ControlPlane& control_plane);

  /// Once the windows are open. A set that has no place in them trades at most. `allreduces`:
  /// whether it carries those, too.
  void open(int place, bool allreduces);

  /// Whether two ranks trade such a call, of a caller that waits; alike on every rank.
  bool trades(ExchangeKind kind, std::size_t input_bytes) const {
    return trades_ && kind == ExchangeKind::kAllreduce && input_bytes > 0 &&
           input_bytes <= PairExchange::kLargest;
  }
  /// What runs, or ran last, is a trade: messages bring it forward.
  bool is_trade() const { return is_trade_; }

  /// Whether it carries such a call over the boards, or may; alike on every rank.
  bool takes(ExchangeKind kind, std::size_t input_bytes) const;
  /// Of what it takes: false if it leaves this call to a schedule. Alike on every rank.
  /// Precondition: the calls before are over, as far as it takes them.
  bool tries(const Request& request) const {
    return request.bytes() <= largest_ || request.sequence >= next_try_;
  }
  /// Bytes of the largest all-reduce with one hop, and of the largest of all; 0 where it carries
  /// none.
  std::size_t largest_one_shot() const { return allreduces_ ? largest_one_shot_ : 0; }
  std::size_t largest_allreduce() const { return allreduces_ ? largest_ : 0; }
  /// The same on memory of the arena.
  std::size_t largest_mapped() const { return allreduces_ ? largest_mapped_ : 0; }
  /// Bytes of the largest that two ranks trade; 0 where they do not.
  std::size_t largest_trade() const { return trades_ ? PairExchange::kLargest : 0; }
  /// What the request that runs, or ran last, is carried by: "one_shot", "two_shot", or
  /// "pair_exchange", a trade.
  std::string_view algorithm() const { return algorithm_of(two_shot_); }
  /// The same of one that would begin now.
  std::string_view algorithm(const Request& request) const {
    return algorithm_of(is_two_shot(request));
  }
  /// What all ranks must take a request for.
  static std::uint64_t what_of(const Request& request, const Communicator& communicator) {
    // The root as the world counts it, as messages name ranks.
    const int root = communicator.ranks()[static_cast<std::size_t>(request.root)];
    return kolo::what_of(request.kind, request.type, request.op, root, request.count,
                         request.before);
  }
  /// The same of the one that runs, or ran last.
  std::uint64_t what() const { return call_.what; }
  /// One has begun and is not done.
  bool busy() const { return busy_; }

  /// Publishes the input, or begins to wait until there is room for it, or sends it. Preconditions:
  /// takes() and tries(), or trades() it, not busy(). A trade is not prescaled. The memory must
  /// last until advance() has returned true.
  void begin(const Request& request);
  /// Whether all that it waits for has come; then the output is written, or the call is declined(),
  /// or status() says what does not fit together, and it stays busy. Precondition: busy().
  bool advance();
  const Status& status() const { return status_; }
  /// It has left the last call to a schedule, on all ranks.
  bool declined() const { return declined_; }

  /// Its caller leaves an exchange that is not done to whoever adopts it. Precondition: busy().
  void abandon() { abandoned_ = true; }
  /// Takes such an exchange over; false if there is none.
  bool adopt() { return std::exchange(abandoned_, false); }
  /// The same of a trade, if it is this call.
  bool adopt_trade(const Request& request);

  /// Says on the board what this rank begins without an exchange. Nothing without boards.
  OrderedCall announce(const Request& request);
  /// Looks what the ranks from `next` on have made of an announced call; true once all have made
  /// the same of it. kMismatch names both.
  Result<bool> compare(const OrderedCall& call, std::size_t& next) const;

  /// kMismatch if another rank has made another call of the last exchange, which did not wait for
  /// that rank: the root of a broadcast waits for nobody.
  Status look_back() const;

  /// Around a block of the thread that drives: peers that publish meanwhile ring its doorbell.
  /// Returns false if what is waited for has come already.
  bool fall_asleep();
  void wake_up();

  /// Whom it waits for, for stall reports.
  std::string describe() const;

 private:
  /// What is waited for: that slots may be written, inputs, sums of shares.
  enum class Phase : std::uint8_t { kRoom, kInputs, kSums };
  std::string_view algorithm_of(bool two_shot) const {
    if (boards_.empty()) return "pair_exchange";
    return two_shot ? "two_shot" : "one_shot";
  }
  bool is_two_shot(const Request& request) const;
  /// Whether it takes two hops if all ranks' memory is mapped, else one.
  bool depends_on_places(const Request& request) const {
    return request.kind == ExchangeKind::kAllreduce && request.bytes() <= largest_one_shot_ &&
           request.bytes() >= (has_cores_ ? kLeastMapped : kLeastWithoutCores);
  }
  bool says_places() const { return two_shot_ || depends_on_places(request_); }
  /// Its input, on a board, lies in the ring.
  bool is_in_ring() const {
    return request_.bytes() > Board::kLargestInSlot && request_.bytes() <= largest_;
  }
  std::size_t own() const { return static_cast<std::size_t>(communicator_.rank()); }
  OrderedCall call_of(const Request& request) const;
  Board::Slot& slot_of(std::size_t rank) const;
  std::byte* data_of(std::size_t rank) const;
  std::uint64_t flag_of(std::size_t rank) const;
  const OrderedCall& awaited() const { return phase_ == Phase::kRoom ? previous_ : call_; }
  bool arrived(std::size_t rank) const { return flag_of(rank) == awaited_; }
  bool advance_trade();
  /// Whether all have come that this phase waits for, or status_ is set.
  bool all_arrived();
  Status check_waited_for(std::size_t rank) const;
  Error mismatch(const OrderedCall& call, std::size_t rank, std::uint64_t what) const;
  /// Whether this rank's call of that number failed at once.
  bool was_refused(const OrderedCall& call) const;
  /// Elements of the share that a rank sums begin here; rank size() stands for their end.
  std::uint64_t share_begin(std::size_t rank) const;
  /// A place for the input.
  void take_from_ring();
  void publish();
  void publish_input();
  /// Of the input's elements.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  /// Of an alltoall and a reduce-scatter: what of the input this rank takes itself.
  Range own_part() const;
  /// What no other rank wants of the input, and this one takes from where it is.
  Range kept_range() const;
  /// Whether what this rank reduces of its input is read there, not from the board.
  bool reduces_input_of(Range range) const;
  /// Prescaled, to the own board.
  void copy_onto_board(Range range);
  // Of a two-shot (one_shot_sums.cc).
  /// Says where the own input and output lie.
  void publish_place();
  /// Where all ranks' do, once they have said it.
  Status find_places();
  bool all_mapped() const;
  /// Some rank's memory is too large for a slot, and not mapped.
  bool must_decline() const;
  void decline();
  Status publish_sum();
  void fetch_sums();
  /// Takes what this rank wants of all inputs.
  void collect();
  /// The others have read the slot of the next exchange, which takes their lines of it: now, not
  /// when it is written, if it is as large as this one. More lines are there later, or not at all.
  void fetch_next_slot() const;
  void ring_sleepers();

  const Communicator& communicator_;
  const RecentCalls& recent_calls_;
  HostWindow& window_;
  const Device& device_;
  ControlPlane& control_plane_;
  PairExchange pair_;
  bool trades_ = false;
  bool is_trade_ = false;
  std::vector<Board*> boards_;  ///< by rank; empty without windows
  std::size_t largest_one_shot_ = 0;
  std::size_t largest_ = 0;         ///< bytes it takes, whatever memory
  std::size_t largest_mapped_ = 0;  ///< of an all-reduce on the arena's
  bool allreduces_ = false;
  bool has_cores_ = false;      ///< each of several ranks its own
  std::uint64_t next_try_ = 0;  ///< the first call to be tried beyond largest_
  std::uint64_t pause_ = 1;     ///< calls after the next one that is declined

  Request request_;
  Status status_;
  OrderedCall call_;           ///< of the running exchange
  OrderedCall previous_;       ///< of the one before
  std::uint64_t awaited_ = 0;  ///< flag of this phase
  Board::Places places_;       ///< of the running exchange, the own
  /// Of a two-shot, by rank: where its memory is, null where that is not mapped here.
  std::vector<std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
  std::uint64_t exchange_ = 0;
  std::size_t ring_at_ = 0;   ///< where the input lies in the ring, alike on all boards
  std::size_t ring_end_ = 0;  ///< behind it
  Phase phase_ = Phase::kInputs;
  std::size_t next_ = 0;      ///< the first rank that has not been seen in this phase
  std::size_t end_ = 0;       ///< and the one behind the last
  int looks_ = 0;             ///< in vain
  bool all_seen_ = true;      ///< every flag of the last exchange
  bool two_shot_ = false;     ///< the running exchange
  bool were_mapped_ = false;  ///< all ranks' memory, in the last one that depends_on_places()
  bool busy_ = false;
  bool declined_ = false;
  bool abandoned_ = false;
  bool asleep_ = false;
};

}  // namespace kolo
