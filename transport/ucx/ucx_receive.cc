// UcxTransport's receiving side: puts active messages in order and matches them with receives. The
// handlers run inside ucp_worker_progress(); see ucx_transport_impl.h.
#include "runtime/base/check.h"
#include "transport/ucx/ucx_memory.h"
#include "transport/ucx/ucx_transport_impl.h"

#include <cstring>
#include <utility>

namespace kolo {

template <UcxStream stream>
ucs_status_t UcxTransport::on_arrival(void* self, const void* header, std::size_t header_length,
                                      void* data, std::size_t length,
                                      const ucp_am_recv_param_t* parameters) {
  auto& transport = *static_cast<UcxTransport*>(self);
  UcxHeader known;
  if (transport.failure_ || header_length != sizeof(known)) return UCS_OK;  // UCX drops the data
  std::memcpy(&known, header, sizeof(known));
  if (known.sender < 0 || std::cmp_greater_equal(known.sender, transport.links_.size())) {
    return UCS_OK;
  }
  return transport.accept(stream, known, data, length, parameters->recv_attr);
}

Status UcxTransport::listen() {
  const auto set = [this](UcxStream stream, ucp_am_recv_callback_t callback) -> Status {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                        UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id = static_cast<unsigned>(stream);
    params.cb = callback;
    params.arg = this;
    const ucs_status_t status = ucp_worker_set_am_recv_handler(ucx_.worker.get(), &params);
    if (status != UCS_OK) return ucx_error(status, "setting a handler of active messages");
    return {};
  };
  KOLO_TRY(set(UcxStream::kControl, &UcxTransport::on_arrival<UcxStream::kControl>));
  return set(UcxStream::kTagged, &UcxTransport::on_arrival<UcxStream::kTagged>);
}

ucs_status_t UcxTransport::accept(UcxStream stream, const UcxHeader& header, void* data,
                                  std::size_t length, std::uint64_t attributes) {
  const int peer = header.sender;
  Link& link = links_[static_cast<std::size_t>(peer)];
  activate(link);
  Sequence& sequence = link.sequences[static_cast<std::size_t>(stream)];
  if (header.sequence != sequence.next_delivered) {
    auto [arrival, status] = keep(data, length, attributes);
    arrival.call = header.tag.call;
    arrival.checksum = header.checksum;
    sequence.early.emplace(header.sequence, Early{header.tag, std::move(arrival)});
    return status;
  }
  ++sequence.next_delivered;
  ++delivered_;

  ucs_status_t result = UCS_OK;
  const bool rendezvous = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const std::span bytes(static_cast<const std::byte*>(data), rendezvous ? 0 : length);
  const MessageKey key{.peer = peer, .tag = header.tag};
  if (stream == UcxStream::kControl) {
    listener_->on_message(peer, bytes);
  } else if (const auto receive = matcher_.match(key)) {
    const TransferEnd sent{peer, length, header.tag.call, header.checksum};
    if (Status fits = check_arrival(*receive, sent, rendezvous); !fits.ok()) {
      receive->transfer->finish(std::move(fits));
    } else if (rendezvous) {
      pull(peer, *receive, data);
      result = UCS_INPROGRESS;
    } else {
      if (length != 0) std::memcpy(receive->data.data(), data, length);
      receive->transfer->finish(Status());
    }
  } else {
    auto [arrival, status] = keep(data, length, attributes);
    arrival.call = header.tag.call;
    arrival.checksum = header.checksum;
    matcher_.keep(key, std::move(arrival));
    result = status;
  }

  while (!sequence.early.empty() && sequence.early.begin()->first == sequence.next_delivered) {
    ++sequence.next_delivered;
    deliver(stream, peer, std::move(sequence.early.extract(sequence.early.begin()).mapped()));
  }
  return result;
}

std::pair<UcxArrival, ucs_status_t> UcxTransport::keep(void* data, std::size_t length,
                                                       std::uint64_t attributes) const {
  if ((attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return {{.kind = UcxArrival::Kind::kRendezvous, .length = length, .descriptor = data},
            UCS_INPROGRESS};
  }
  if ((attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
    return {{.kind = UcxArrival::Kind::kEagerDescriptor, .length = length, .descriptor = data},
            UCS_INPROGRESS};
  }
  const auto* const bytes = static_cast<const std::byte*>(data);
  return {{.kind = UcxArrival::Kind::kCopied, .length = length, .copy = {bytes, bytes + length}},
          UCS_OK};
}

// Delivers a message that was kept until its turn.
void UcxTransport::deliver(UcxStream stream, int peer, Early early) {
  if (failure_) {
    release(early.arrival);
    return;
  }
  const MessageKey key{.peer = peer, .tag = early.tag};
  if (stream == UcxStream::kControl) {
    const UcxArrival& arrival = early.arrival;
    const auto* const data = arrival.kind == UcxArrival::Kind::kCopied
                                 ? arrival.copy.data()
                                 : static_cast<const std::byte*>(arrival.descriptor);
    listener_->on_message(peer, {data, arrival.length});
    release(arrival);
  } else if (const auto receive = matcher_.match(key)) {
    consume(peer, *receive, std::move(early.arrival));
  } else {
    matcher_.keep(key, std::move(early.arrival));
  }
}

Status UcxTransport::check_arrival(const PostedReceive& receive, const TransferEnd& sent,
                                   bool is_rendezvous) const {
  receive.transfer->set_checksum(sent.checksum);
  if (!fit(end_of(receive), sent)) return receive.transfer->mismatch(end_of(receive), sent);
  // The processor would copy an eager message, but it cannot write device memory.
  if (!is_rendezvous && type_of(receive.transfer->memory()) != MemoryType::kHost)
    return KOLO_ERROR(kMismatch,
                      "rank {} expected {} bytes of a device from rank {}, which sent memory of "
                      "its host",
                      rank_, receive.data.size(), sent.rank);
  return {};
}

void UcxTransport::receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) {
  transfer.start();
  if (Status status = check_peer(peer); !status.ok()) {
    transfer.finish(std::move(status));
    return;
  }
  const PostedReceive receive{.data = data, .transfer = &transfer, .call = tag.call};
  const MessageKey key{.peer = peer, .tag = tag};
  if (Status status = check_link(peer); !status.ok()) {
    // Eager data that the rank sent before it left is here. A rendezvous can no longer be pulled.
    auto arrival = matcher_.take(key);
    if (arrival && arrival->kind != UcxArrival::Kind::kRendezvous)
      return consume(peer, receive, *std::move(arrival));
    if (arrival) release(*arrival);
    transfer.finish(std::move(status));
    return;
  }
  if (auto arrival = matcher_.post(key, receive)) consume(peer, receive, *std::move(arrival));
}

void UcxTransport::consume(int peer, const PostedReceive& receive, UcxArrival arrival) {
  const bool is_rendezvous = arrival.kind == UcxArrival::Kind::kRendezvous;
  const TransferEnd sent{peer, arrival.length, arrival.call, arrival.checksum};
  Status fits = check_arrival(receive, sent, is_rendezvous);
  const auto fill = [&](const void* from) {
    if (fits.ok() && arrival.length != 0) std::memcpy(receive.data.data(), from, arrival.length);
  };
  switch (arrival.kind) {
    case UcxArrival::Kind::kRendezvous:
      if (fits.ok()) {
        pull(peer, receive, arrival.descriptor);
        return;
      }
      break;
    case UcxArrival::Kind::kEagerDescriptor:
      fill(arrival.descriptor);
      break;
    case UcxArrival::Kind::kCopied:
      fill(arrival.copy.data());
      break;
    case UcxArrival::Kind::kLocal:
      fill(arrival.local);
      --sends_pending_;
      arrival.local_send->finish(Status());
      break;
  }
  release(arrival);
  receive.transfer->finish(std::move(fits));
}

void UcxTransport::pull(int peer, const PostedReceive& receive, void* descriptor) {
  UcxRequest& request = requests_.take();
  request.owner = this;
  request.peer = peer;
  request.is_send = false;
  request.transfer = receive.transfer;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &UcxTransport::on_pulled;
  params.user_data = &request;
  describe_memory(params, receive.transfer->memory());
  void* const pulled = ucp_am_recv_data_nbx(ucx_.worker.get(), descriptor, receive.data.data(),
                                            receive.data.size(), &params);
  if (UCS_PTR_IS_PTR(pulled)) return;
  complete(request, UCS_PTR_STATUS(pulled), "receiving from");
}

void UcxTransport::on_pulled(void* request, ucs_status_t status, std::size_t /*length*/,
                             void* user_data) {
  ucp_request_free(request);
  auto& record = *static_cast<UcxRequest*>(user_data);
  record.owner->complete(record, status, "receiving from");
}

void UcxTransport::release(const UcxArrival& arrival) {
  if (arrival.descriptor != nullptr) ucp_am_data_release(ucx_.worker.get(), arrival.descriptor);
}

}  // namespace kolo
