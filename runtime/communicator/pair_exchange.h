// PairExchange: the ordered all-reduces of a few bytes between two ranks that map nothing of each
// other, so between two hosts, which their caller runs in its own thread: each rank sends its
// vector, takes the other's, and adds the two in order of rank. It is what
// allreduce_recursive_doubling does with two ranks, to the byte on the wire and to the bit of the
// result, without the microsecond that an operation costs: so one rank may come this way and the
// other, whose caller does not wait, by its operation.
//
// One runs at a time in each process set. Member of OneShot. Token holder only.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/device/device.h"
#include "transport/transport.h"

#include <kolo/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

class PairExchange final : public TransferListener {
 public:
  /// Bytes of the largest; beyond, what an operation costs is no part of the time any more.
  static constexpr std::size_t kLargest = 1024;

  PairExchange(const Communicator& communicator, Transport& transport)
      : communicator_(communicator), transport_(transport) {}

  /// Copies the input, posts the receive and sends. `call`: as of Tag. Preconditions: two ranks, 0
  /// < bytes <= kLargest, and the last one is done.
  void begin(std::span<const std::byte> input, std::uint64_t sequence, std::uint64_t call);
  /// Both vectors are here and the own one has left, or status() says what failed.
  bool done() const { return pending_ == 0 || !status_.ok(); }
  const Status& status() const { return status_; }
  /// Adds the two into `output`. Precondition: done(), without a failure.
  void combine(const Device& device, DataType type, ReduceOp op, Scale postscale,
               std::byte* output);
  /// The rank of the world at the other end.
  int partner() const {
    return communicator_.ranks()[static_cast<std::size_t>(1 - communicator_.rank())];
  }

 private:
  void on_transfer_done(Transfer& transfer) override;

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
