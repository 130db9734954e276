// OrderedCall: the number and fingerprint of a call in in-order submission. Ranks compare them in
// control segments and messages, because nothing else shows that ranks are out of step. Pure values
// and functions.
#pragma once

#include "runtime/base/operation_kind.h"

#include <kolo/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace kolo {

struct OrderedCall {
  std::uint64_t number = 0;       ///< number of the call; 0: none
  std::uint64_t fingerprint = 0;  ///< call_fingerprint(): the arguments and the earlier calls

  /// Number and fingerprint in one word, so that one comparison shows whether a peer makes the same
  /// call. The mixing is bijective, so two different calls collide with probability 2⁻⁶⁴.
  /// (Multipliers: Steele and Vigna.)
  std::uint64_t flag() const {
    std::uint64_t mixed = (number ^ fingerprint * 0xd1342543de82ef95u) * 0xaf251af3b0f025b5u;
    mixed ^= mixed >> 32;
    return mixed * 0xd1342543de82ef95u;
  }
};

/// `count`: elements of a rank's input, modulo 2³⁴. `root`: modulo 2¹². `before`:
/// CallHistory::bits().
std::uint64_t call_fingerprint(OperationKind kind, DataType type, ReduceOp op, int root,
                               std::uint64_t count, std::uint64_t before = 0);
/// Stands for call_fingerprint() of a call with invalid arguments, which the rank skipped.
inline constexpr std::uint64_t kRefusedCall = UINT64_MAX;

/// A digest of a rank's earlier calls, which each call carries. It exposes ranks whose calls once
/// differed even if their later calls look equal. One call that failed at once on one rank alone
/// always shows; one other difference shows in 127 of 128 cases. A value type.
class CallHistory {
 public:
  static constexpr int kBits = 8;
  static constexpr std::uint64_t kMask = (1 << kBits) - 1;

  std::uint64_t bits() const { return bits_; }
  /// Adds the next call. The history bits inside `fingerprint` do not count.
  void add(std::uint64_t fingerprint) {
    // The added value is odd for refused calls and even otherwise. A difference lasts while later
    // calls are equal, since multiplication by an odd number is bijective.
    const std::uint64_t even = ((fingerprint & ~kMask) * 0xd1342543de82ef95u) >> (65 - kBits) << 1;
    bits_ = (bits_ * 0xaf + (fingerprint == kRefusedCall ? 1 : even)) & kMask;
  }

 private:
  std::uint64_t bits_ = 0;
};
/// "allreduce of 8 float32 by sum", "broadcast of 2 int64 from rank 1", "barrier".
std::string to_text(std::uint64_t fingerprint);

/// "rank 0 calls … where rank 1 calls …", or that both make this call but not after the same calls.
/// Adds what the histories tell about the cause, and the advice. `suffix`: Communicator::suffix().
std::string clash_text(int rank, std::uint64_t fingerprint, int other, std::uint64_t others,
                       std::string_view suffix);
/// The advice for ranks that are out of step.
inline constexpr std::string_view kSameCallsAdvice =
    "every rank must make the same ordered calls in the same order, with the same arguments";

}  // namespace kolo
