// OrderedCall: what a rank takes a call of the ordered door for. Ranks compare it, on boards and in
// messages, since nothing else tells them that they are out of step. Pure values and functions.
#pragma once

#include <kolo/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace kolo {

/// The calls of the ordered door.
enum class ExchangeKind : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kAlltoall,
  kReduceScatter,
  kBarrier,
};
std::string_view to_string(ExchangeKind kind);

struct OrderedCall {
  std::uint64_t number = 0;  ///< which call it is; 0: none
  std::uint64_t what = 0;    ///< kind, type, operation, root and count, and what was called before

  /// Both in one word, so that one look tells that a peer makes the same call: mixed by bijections,
  /// two different calls give the same word once in 2⁶⁴. (Multipliers: Steele and Vigna's.)
  std::uint64_t flag() const {
    std::uint64_t mixed = (number ^ what * 0xd1342543de82ef95u) * 0xaf251af3b0f025b5u;
    mixed ^= mixed >> 32;
    return mixed * 0xd1342543de82ef95u;
  }
};

/// `count`: elements of a rank's input. Counts from 2³⁴ on and roots from 2¹² on are cut off.
/// `before`: CallHistory::bits().
std::uint64_t what_of(ExchangeKind kind, DataType type, ReduceOp op, int root, std::uint64_t count,
                      std::uint64_t before = 0);
/// In place of what_of(): the call had no valid arguments on that rank, which has gone on.
inline constexpr std::uint64_t kRefusedCall = UINT64_MAX;

/// What a rank has called before, as each call carries it: ranks that once did not call the same
/// are not taken for such as do, where later calls look alike. One call that failed at once on one
/// of them alone shows always, one other difference in 127 of 128 cases. A value.
class CallHistory {
 public:
  static constexpr int kBits = 8;
  static constexpr std::uint64_t kMask = (1 << kBits) - 1;

  std::uint64_t bits() const { return bits_; }
  /// `what`: of the next call; its own `before` does not count.
  void add(std::uint64_t what) {
    // Even but for refused calls; and what differs once differs for as long as calls are alike.
    const std::uint64_t even = ((what & ~kMask) * 0xd1342543de82ef95u) >> (65 - kBits) << 1;
    bits_ = (bits_ * 0xaf + (what == kRefusedCall ? 1 : even)) & kMask;
  }

 private:
  std::uint64_t bits_ = 0;
};
/// "allreduce of 8 float32 by sum", "broadcast of 2 int64 from rank 1", "barrier".
std::string to_text(std::uint64_t what);

/// "rank 0 calls … where rank 1 calls …", or that they call the same in different places, how they
/// came to it if calls before tell, and what to do. `suffix`: Communicator::suffix().
std::string clash_text(int rank, std::uint64_t what, int other, std::uint64_t others,
                       std::string_view suffix);
/// What to do about ranks out of step.
inline constexpr std::string_view kSameCallsAdvice =
    "every rank must make the same ordered calls in the same order, with the same arguments";

}  // namespace kolo
