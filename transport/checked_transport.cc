#include "transport/checked_transport.h"

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"

#include <cstring>

namespace kolo {
namespace {

/// Covers the bytes and everything by which sender and receiver know them.
std::uint32_t checksum_of_message(int sender, int receiver, const Tag& tag,
                                  std::span<const std::byte> data) {
  const std::uint64_t words[] = {std::uint64_t{static_cast<std::uint32_t>(sender)} << 32 |
                                     static_cast<std::uint32_t>(receiver),
                                 std::uint64_t{tag.communicator} << 32 | tag.step, tag.operation,
                                 tag.call, data.size()};
  return checksum_of(data, checksum_of(std::as_bytes(std::span(words))));
}

Error damaged(int sender, int receiver, const std::string& what, std::uint32_t sent,
              std::uint32_t arrived) {
  return KOLO_ERROR(kTransport,
                    "rank {}: {} from rank {} is damaged: rank {} sent it with checksum {:08x}, "
                    "but what came has {:08x} (KOLO_WIRE_CHECK). Memory, a network card or a "
                    "switch between the two changes data, or something writes to the memory of "
                    "one; look at both hosts before going on",
                    receiver, what, sender, sender, sent, arrived);
}

Error reaches_no_device() {
  return KOLO_ERROR(kUnsupported, "KOLO_WIRE_CHECK=1 checks messages in the memory of hosts");
}

}  // namespace

Status CheckedTransport::connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                                 const Abort& abort, Deadline deadline) {
  rank_ = rank;
  listener_ = &listener;
  return inner_->connect(rank, std::move(peers), *this, abort, deadline);
}

Status CheckedTransport::post_message(int peer, std::span<const std::byte> message) {
  const std::uint32_t checksum = checksum_of_message(rank_, peer, {}, message);
  message_.resize(message.size() + kControlChecksum);
  if (!message.empty()) std::memcpy(message_.data(), message.data(), message.size());
  std::memcpy(message_.data() + message.size(), &checksum, kControlChecksum);
  return inner_->post_message(peer, message_);
}

void CheckedTransport::on_message(int peer, std::span<const std::byte> message) {
  std::uint32_t sent = 0;
  const bool is_whole = message.size() >= kControlChecksum;
  const std::size_t size = is_whole ? message.size() - kControlChecksum : 0;
  if (is_whole) std::memcpy(&sent, message.data() + size, kControlChecksum);
  message = message.first(size);
  const std::uint32_t arrived = checksum_of_message(peer, rank_, {}, message);
  if (is_whole && sent == arrived) return listener_->on_message(peer, message);
  listener_->on_failed(
      damaged(peer, rank_, fmt::format("a control message of {} bytes", size), sent, arrived));
}

void CheckedTransport::send(int peer, Tag tag, std::span<const std::byte> data,
                            Transfer& transfer) {
  transfer.set_checksum(checksum_of_message(rank_, peer, tag, data));
  inner_->send(peer, tag, data, transfer);
}

void CheckedTransport::receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) {
  if (free_receives_.empty()) {
    free_receives_.push_back(static_cast<std::uint32_t>(receives_.size()));
    receives_.emplace_back();
  }
  const std::uint32_t id = free_receives_.back();
  free_receives_.pop_back();
  Receive& receive = receives_[id];
  receive = {.peer = peer,
             .tag = tag,
             .data = data,
             .outer = &transfer,
             .inner = Transfer(*this, id, transfer.memory())};
  transfer.start();
  inner_->receive(peer, tag, data, receive.inner);
}

void CheckedTransport::on_transfer_done(Transfer& transfer) {
  const Receive& receive = receives_[transfer.id()];
  Status status = transfer.status();
  if (status.ok()) {
    const std::uint32_t sent = transfer.checksum();
    const std::uint32_t arrived =
        checksum_of_message(receive.peer, rank_, receive.tag, receive.data);
    if (sent != arrived)
      status = damaged(receive.peer, rank_,
                       fmt::format("the message of {} bytes (step {} of operation {})",
                                   receive.data.size(), receive.tag.step, receive.tag.operation),
                       sent, arrived);
  }
  Transfer& outer = *receive.outer;
  free_receives_.push_back(transfer.id());  // the listener may post the next receive
  outer.finish(std::move(status));
}

Result<std::unique_ptr<MemoryRegion>> CheckedTransport::register_memory(std::span<std::byte> bytes,
                                                                        MemoryType type) {
  if (type != MemoryType::kHost) return reaches_no_device();
  return inner_->register_memory(bytes, type);
}

Result<std::string> CheckedTransport::reach_device(std::span<std::byte> /*memory*/) {
  return reaches_no_device();
}

}  // namespace kolo
