// TwoRankExchange: in-order all-reduces of a few bytes between two ranks that do not map each
// other's memory, as ranks on two hosts. The caller runs it in its own thread. Each rank sends its
// vector, receives the other's, and adds the two in order of rank.
//
// On the wire and in the result, it equals allreduce_recursive_doubling with two ranks, bit for
// bit. So one rank may use it while the other, whose caller does not wait, runs an operation. It
// saves the microsecond that an operation costs.
//
// One runs at a time in each process set. Member of Exchange. Token holder only.
#pragma once

#include "runtime/communicator/call_mismatch.h"
#include "runtime/communicator/communicator.h"
#include "runtime/device/device.h"
#include "runtime/planning/thresholds.h"
#include "transport/transport.h"

#include <kolo/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

class TwoRankExchange final : public TransferListener {
 public:
  /// Bytes of the largest input; above, the cost of an operation does not matter.
  static constexpr std::size_t kLargest = thresholds::kTwoRankExchange;

  TwoRankExchange(const Communicator& communicator, Transport& transport)
      : communicator_(communicator), transport_(transport) {}

  /// Copies the input, posts the receive and sends. `call`: see Tag. Preconditions: two ranks, 0 <
  /// bytes <= kLargest, and the previous exchange is done.
  void begin(std::span<const std::byte> input, std::uint64_t sequence, std::uint64_t call);
  /// The other vector has arrived and the own one has left, or status() says what failed.
  bool done() const { return pending_ == 0 || !status_.ok(); }
  const Status& status() const { return status_; }
  /// Writes the sum to `output`. Precondition: done() without a failure.
  void combine(const Device& device, DataType type, ReduceOp op, Scale postscale,
               std::byte* output);
  /// The rank of the world at the other end.
  int partner() const {
    return communicator_.ranks()[static_cast<std::size_t>(1 - communicator_.rank())];
  }

 private:
  void on_transfer_done(Transfer& transfer) override;
  Error mismatch(const Transfer& /*transfer*/, const TransferEnd& receiver,
                 const TransferEnd& sender) const override {
    return call_mismatch(receiver, sender);
  }

  const Communicator& communicator_;
  Transport& transport_;
  alignas(64) std::array<std::byte, kLargest> own_ = {};
  alignas(64) std::array<std::byte, kLargest> other_ = {};
  std::size_t bytes_ = 0;
  Transfer send_;
  Transfer receive_;
  int pending_ = 0;
  Status status_;
};

}  // namespace kolo
