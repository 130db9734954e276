// Transfer: one tagged message under way. The caller owns it, and keeps its address and its memory
// until it is done. Token holder only.
#pragma once

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace kolo {

class MemoryRegion;
class Transfer;

/// One end of a transfer.
struct TransferEnd {
  int rank = 0;
  std::size_t length = 0;      ///< bytes
  std::uint64_t call = 0;      ///< Tag::call
  std::uint32_t checksum = 0;  ///< Transfer::checksum() of the sender
};
inline bool fit(const TransferEnd& receiver, const TransferEnd& sender) {
  return receiver.length == sender.length && receiver.call == sender.call;
}

/// Called once per transfer, from within send(), receive(), progress() or fail_all(). May post
/// further transfers.
class TransferListener {
 public:
  virtual void on_transfer_done(Transfer& transfer) = 0;
  /// The error of a receive that a message does not fit(): kMismatch, which names both lengths or
  /// both calls as numbers. Listeners that know more say more.
  virtual Error mismatch(const Transfer& transfer, const TransferEnd& receiver,
                         const TransferEnd& sender) const;

 protected:
  ~TransferListener() = default;
};

class Transfer {
 public:
  enum class State : std::uint8_t { kIdle, kPending, kDone, kFailed };

  Transfer() = default;
  /// `id`: the listener's own number for this transfer. `memory`: the registered region that
  /// contains the data; host memory need not be registered.
  Transfer(TransferListener& listener, std::uint32_t id, const MemoryRegion* memory = nullptr)
      : listener_(&listener), memory_(memory), id_(id) {}

  State state() const noexcept { return state_; }
  std::uint32_t id() const noexcept { return id_; }
  const MemoryRegion* memory() const noexcept { return memory_; }
  /// Travels beside the message: a send's is set before it, a receive has it once it is done.
  std::uint32_t checksum() const noexcept { return checksum_; }
  void set_checksum(std::uint32_t checksum) noexcept { checksum_ = checksum; }
  /// Why the transfer failed; ok if it did not, or is not done yet.
  const Status& status() const noexcept { return status_; }

  // For transports.
  Error mismatch(const TransferEnd& receiver, const TransferEnd& sender) const {
    return listener_->mismatch(*this, receiver, sender);
  }
  void start() noexcept { state_ = State::kPending; }
  void finish(Status status) {
    state_ = status.ok() ? State::kDone : State::kFailed;
    status_ = std::move(status);
    listener_->on_transfer_done(*this);
  }

 private:
  TransferListener* listener_ = nullptr;
  const MemoryRegion* memory_ = nullptr;
  std::uint32_t id_ = 0;
  std::uint32_t checksum_ = 0;
  State state_ = State::kIdle;
  Status status_;
};

}  // namespace kolo
