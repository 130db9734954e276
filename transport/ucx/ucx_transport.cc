// UcxTransport's sending side, its endpoints and its progress; see ucx_transport_impl.h.
#include "transport/ucx/ucx_transport.h"

#include "runtime/base/check.h"
#include "transport/ucx/ucx_gpudirect.h"
#include "transport/ucx/ucx_memory.h"
#include "transport/ucx/ucx_transport_impl.h"
#include "transport/wait.h"

#include <limits>
#include <set>
#include <sstream>
#include <utility>

namespace kolo {
namespace {

// Bounds one progress(), so that a peer that floods this rank does not starve this rank's work.
constexpr int kMostProgressAtOnce = 32;
// Eager for every size. Measured with 2 ranks on 2 cores that exchange 64 MiB over shared memory, 4
// chunks in flight (median GB/s each way): eager reaches 1.65 with chunks of 64 KiB, 1.70 with 256
// KiB and 1.39 with 1 MiB; rendezvous over CMA reaches 0.80, 1.05 and 1.09. Eager also keeps a
// failed transfer's memory private to this process, while a rendezvous lets the receiver read it.
constexpr std::size_t kHostRendezvousFrom = std::numeric_limits<std::size_t>::max();

/// Among how many ranks connect() makes the endpoints to other hosts.
std::size_t most_connected_ranks() {
  // Before 1.14, UCX does not outlive a peer that goes away while it connects on first use.
  constexpr std::size_t kBefore1_14 = 256;
  return is_ucx_from(14) ? Transport::kFewRanks : kBefore1_14;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options) {
  KOLO_ASSIGN(UcxResources ucx, open_ucx(options));
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(std::move(ucx), options));
}

UcxTransport::UcxTransport(UcxResources ucx, const UcxOptions& options)
    : ucx_(std::move(ucx)),
      host_rendezvous_from_(options.host_rendezvous_from.value_or(kHostRendezvousFrom)) {
  if (options.environment.get("UCX_RNDV_THRESH")) host_rendezvous_from_.reset();
}

std::string UcxTransport::description() const {
  std::set<std::string> names;
  for (const Link& link : links_) {
    if (link.endpoint == nullptr || given_up_) continue;
    std::istringstream list(ucx_transports(link.endpoint));
    for (std::string name; std::getline(list >> std::ws, name, ',');) names.insert(name);
  }
  if (!names.empty()) return fmt::format("ucx {} ({})", ucx_version(), fmt::join(names, ", "));
  return fmt::format("ucx {} (able to use {})", ucx_version(), ucx_transports(ucx_.context.get()));
}

Status UcxTransport::connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                             const Abort& abort, Deadline deadline) {
  if (abort.raised()) return abort.error();
  if (deadline.expired()) {
    return KOLO_ERROR(kTimeout, "rank {}: the deadline passed before connecting", rank);
  }
  if (rank < 0 || std::cmp_greater_equal(rank, peers.size())) {
    return KOLO_ERROR(kInvalidArgument, "rank {} is none of {} ranks", rank, peers.size());
  }
  rank_ = rank;
  for (Peer& peer : peers) {
    Link& link = links_.emplace_back();
    link.owner = this;
    link.rank = static_cast<int>(links_.size()) - 1;
    link.peer = std::move(peer);
  }
  KOLO_TRY(listen());
  listener_ = &listener;
  // Connect now. A rank of this host that exits takes along its memory for messages, and UCX
  // complains about later attempts. UCX answers a rank of another host that connects over this
  // rank's own endpoint. Without one it makes another, and UCX 1.13 ends the process if that rank
  // goes away before the answer has left. A rank that is gone already is missed where it is needed.
  const bool connects_hosts = links_.size() <= most_connected_ranks();
  for (Link& link : links_) {
    if (link.rank == rank_ || !(link.peer.same_host || connects_hosts)) continue;
    link.idle = !link.peer.same_host && links_.size() > kFewRanks;
    static_cast<void>(endpoint_to(link));
  }
  return {};
}

Status UcxTransport::check_peer(int peer) const {
  if (failure_) return *failure_;
  if (given_up_) return *given_up_;
  if (listener_ == nullptr) {
    return KOLO_ERROR(kInternal, "the transport is used before connect()");
  }
  if (peer < 0 || std::cmp_greater_equal(peer, links_.size())) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: there is no rank {} among {} ranks", rank_, peer,
                      links_.size());
  }
  return {};
}

Status UcxTransport::check_link(int peer) {
  KOLO_TRY(check_peer(peer));
  Link& link = links_[static_cast<std::size_t>(peer)];
  use(link);
  if (link.failure) return *link.failure;
  return {};
}

Result<ucp_ep_h> UcxTransport::make_endpoint(const std::string& address, Link* link) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  if (link != nullptr && !link->peer.same_host) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = &UcxTransport::on_endpoint_failed, .arg = link};
  }
  ucp_ep_h endpoint = nullptr;
  ucs_status_t status = UCS_OK;
  call_ucx([&] { status = ucp_ep_create(ucx_.worker.get(), &params, &endpoint); });
  if (given_up_) return *given_up_;
  if (status != UCS_OK) {
    Error error = ucx_error(status, fmt::format("rank {}: no way to rank {}", rank_,
                                                link == nullptr ? rank_ : link->rank));
    if (status == UCS_ERR_SHMEM_SEGMENT)
      error.message +=
          ". UCX_POSIX_USE_PROC_LINK=n on all ranks shares memory by names in /dev/shm";
    return error;
  }
  return endpoint;
}

Result<ucp_ep_h> UcxTransport::endpoint_to(Link& link) {
  if (link.endpoint == nullptr) {
    auto endpoint = make_endpoint(link.peer.address, &link);
    if (!endpoint.ok() && !link.peer.same_host) lose(link, endpoint.error());
    KOLO_ASSIGN(link.endpoint, std::move(endpoint));
  }
  return link.endpoint;
}

// Across hosts always eager: over TCP, eager alone reaches the link's limit.
bool UcxTransport::wants_rendezvous(const Link& link, std::size_t bytes) const {
  return link.peer.same_host && bytes >= *host_rendezvous_from_;
}

Status UcxTransport::post(UcxStream stream, Link& link, UcxRequest& request,
                          std::span<const std::byte> data, std::uint32_t flags) {
  Sequence& sequence = link.sequences[static_cast<std::size_t>(stream)];
  request.owner = this;
  request.peer = link.rank;
  request.header.sender = rank_;
  request.header.sequence = sequence.next_sent;
  const auto endpoint = endpoint_to(link);
  if (!endpoint.ok()) return endpoint.error();

  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = &UcxTransport::on_sent;
  params.user_data = &request;
  params.flags = flags;
  describe_memory(params, request.transfer == nullptr ? nullptr : request.transfer->memory());
  void* sent = nullptr;
  call_ucx([&] {
    sent = ucp_am_send_nbx(*endpoint, static_cast<unsigned>(stream), &request.header,
                           sizeof(request.header), data.data(), data.size(), &params);
  });
  if (given_up_) return *given_up_;
  if (UCS_PTR_IS_ERR(sent)) {
    if (!link.peer.same_host) {
      on_endpoint_failed(&link, *endpoint, UCS_PTR_STATUS(sent));
      return *link.failure;
    }
    return ucx_error(UCS_PTR_STATUS(sent),
                     fmt::format("rank {} sending to rank {}", rank_, link.rank));
  }
  activate(link);
  ++sequence.next_sent;
  if (sent == nullptr) {
    complete(request, UCS_OK, "sending to");
  }
  return {};
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  auto& record = *static_cast<UcxRequest*>(user_data);
  record.owner->complete(record, status, "sending to");
}

Status UcxTransport::post_message(int peer, std::span<const std::byte> message) {
  KOLO_TRY(check_peer(peer));
  if (message.size() > kLargestMessage) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: a control message of {} bytes exceeds {}", rank_,
                      message.size(), kLargestMessage);
  }
  if (peer == rank_) {
    own_messages_.emplace_back(message.begin(), message.end());
    return {};
  }
  Link& link = links_[static_cast<std::size_t>(peer)];
  use(link);
  if (link.failure) return {};
  UcxRequest& request = requests_.take();
  request.is_send = true;
  request.copy.assign(message.begin(), message.end());
  ++sends_pending_;
  Status status = post(UcxStream::kControl, link, request, request.copy, UCP_AM_SEND_FLAG_EAGER);
  if (status.ok()) return {};
  --sends_pending_;
  requests_.give_back(request);
  if (link.failure) return {};
  return status;
}

void UcxTransport::send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) {
  transfer.start();
  if (Status status = check_link(peer); !status.ok()) {
    transfer.finish(std::move(status));
    return;
  }
  const bool is_device = type_of(transfer.memory()) != MemoryType::kHost;
  if (peer == rank_) {
    if (is_device) {
      transfer.finish(
          KOLO_ERROR(kUnsupported, "rank {} sends itself no memory of its device", rank_));
    } else {
      send_to_self(tag, data, transfer);
    }
    return;
  }
  Link& link = links_[static_cast<std::size_t>(peer)];
  std::uint32_t flags = 0;
  if (is_device) {
    flags = UCP_AM_SEND_FLAG_RNDV;  // an eager message arrives in host memory
  } else if (host_rendezvous_from_) {
    flags = wants_rendezvous(link, data.size()) ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  }
  UcxRequest& request = requests_.take();
  request.is_send = true;
  request.transfer = &transfer;
  request.header.tag = tag;
  request.header.checksum = transfer.checksum();
  ++sends_pending_;
  if (Status status = post(UcxStream::kTagged, link, request, data, flags); !status.ok()) {
    --sends_pending_;
    requests_.give_back(request);
    transfer.finish(std::move(status));
  }
}

void UcxTransport::send_to_self(Tag tag, std::span<const std::byte> data, Transfer& transfer) {
  const MessageKey key{.peer = rank_, .tag = tag};
  UcxArrival arrival{.kind = UcxArrival::Kind::kLocal,
                     .length = data.size(),
                     .call = tag.call,
                     .checksum = transfer.checksum(),
                     .local = data.data(),
                     .local_send = &transfer};
  ++sends_pending_;
  if (const auto receive = matcher_.match(key)) {
    consume(rank_, *receive, std::move(arrival));
  } else {
    matcher_.keep(key, std::move(arrival));
  }
}

bool UcxTransport::deliver_own_messages() {
  if (own_messages_.empty()) return false;
  for (const auto& message : std::exchange(own_messages_, {})) {
    if (!failure_) listener_->on_message(rank_, message);
  }
  return true;
}

LinkActivity UcxTransport::activity(int peer) const {
  const Link& link = links_[static_cast<std::size_t>(peer)];
  LinkActivity activity;
  for (const Sequence& sequence : link.sequences) {
    activity.opened |= link.endpoint != nullptr && sequence.next_sent > 0;
    activity.arrivals += sequence.next_delivered + sequence.early.size();
  }
  return activity;
}

void UcxTransport::activate(Link& link) {
  if (!std::exchange(link.active, true)) active_peers_.push_back(link.rank);
}

bool UcxTransport::progress() {
  if (listener_ == nullptr || failure_ || progressing_) return false;
  progressing_ = true;
  bool any = deliver_own_messages();
  // Handles what has arrived before UCX looks for more: over TCP each look is a system call.
  const std::uint64_t delivered = delivered_;
  call_ucx([&] {
    for (int i = 0; i < kMostProgressAtOnce && delivered_ == delivered &&
                    ucp_worker_progress(ucx_.worker.get()) != 0;
         ++i) {
      any = true;
    }
  });
  any |= report_failures();
  progressing_ = false;
  return any;
}

bool UcxTransport::arm() {
  if (failure_) return true;
  if (!own_messages_.empty() || !lost_.empty() || !has_told_) return false;
  return given_up_ || ucp_worker_arm(ucx_.worker.get()) != UCS_ERR_BUSY;
}

void UcxTransport::forget(int peer) {
  links_[static_cast<std::size_t>(peer)].ended = true;
  has_ended_ = true;
}

bool UcxTransport::has_sends_to_living() const {
  if (!has_ended_ || sends_pending_ == 0) return sends_pending_ > 0;
  const auto& records = requests_.records();
  return std::any_of(records.begin(), records.end(), [this](const UcxRequest& request) {
    return request.active && request.is_send &&
           !links_[static_cast<std::size_t>(request.peer)].ended;
  });
}

std::vector<void*> UcxTransport::begin_flush() {
  const ucp_request_param_t params{};
  std::vector<void*> requests;
  const auto add = [&](auto flush) {
    void* request = nullptr;
    call_ucx([&] { request = flush(); });
    if (request != nullptr) requests.push_back(request);
  };
  if (!has_ended_) {
    add([&] { return ucp_worker_flush_nbx(ucx_.worker.get(), &params); });
    return requests;
  }
  for (const Link& link : links_) {
    if (link.endpoint == nullptr || link.ended) continue;
    add([&] { return ucp_ep_flush_nbx(link.endpoint, &params); });
  }
  return requests;
}

Status UcxTransport::flush(const Abort& abort, Deadline deadline) {
  if (failure_) return *failure_;
  const std::string doing = fmt::format("rank {} flushed its sends", rank_);
  const auto is_over = [this] { return failure_ || given_up_; };
  KOLO_TRY(progress_until(
      *this, [&] { return !has_sends_to_living() || is_over(); }, abort, deadline, doing));
  if (is_over()) return failure_ ? *failure_ : *given_up_;
  Status status;
  for (void* const request : begin_flush()) {
    if (UCS_PTR_IS_ERR(request)) {
      status = ucx_error(UCS_PTR_STATUS(request), doing);
      continue;
    }
    const Status done = progress_until(
        *this, [&] { return given_up_ || ucp_request_check_status(request) != UCS_INPROGRESS; },
        abort, deadline, doing);
    if (given_up_) return *given_up_;
    if (!done.ok()) {
      status = done;
    } else if (ucp_request_check_status(request) != UCS_OK) {
      status = ucx_error(ucp_request_check_status(request), doing);
    }
    ucp_request_free(request);  // a running request lives until UCX has completed it
  }
  return status;
}

Result<std::unique_ptr<MemoryRegion>> UcxTransport::allocate_mappable(std::size_t bytes) {
  if (own_endpoint_ == nullptr) {
    KOLO_ASSIGN(own_endpoint_, make_endpoint(ucx_.address, nullptr));
  }
  return allocate_ucx_memory(ucx_.context.get(), own_endpoint_, bytes);
}

Result<std::unique_ptr<MemoryRegion>> UcxTransport::register_memory(std::span<std::byte> bytes,
                                                                    MemoryType type) {
  return register_ucx_memory(ucx_.context.get(), bytes, type);
}

Result<std::string> UcxTransport::reach_device(std::span<std::byte> memory) {
  GpuDirect direct = probe_gpudirect(memory);
  if (!direct.works) return KOLO_ERROR(kUnsupported, "{}", direct.reason);
  // The cards support it. UCX_TLS, UCX_NET_DEVICES and KOLO_INTERFACE decide whether UCX uses them.
  const std::string opened = ucx_transports(ucx_.context.get());
  if (opened.find("rc_") == std::string::npos && opened.find("dc_") == std::string::npos)
    return KOLO_ERROR(kUnsupported, "UCX opened none of the RDMA cards' transports, but {}",
                      opened);
  KOLO_TRY(register_memory(memory, MemoryType::kCuda));
  return std::move(direct.reason);
}

Result<std::unique_ptr<PeerMapping>> UcxTransport::map_peer(int peer, std::string_view key) {
  KOLO_TRY(check_link(peer));
  Link& link = links_[static_cast<std::size_t>(peer)];
  if (!link.peer.same_host) {
    return KOLO_ERROR(kUnsupported, "rank {} cannot map memory of rank {} on another host", rank_,
                      peer);
  }
  KOLO_ASSIGN(ucp_ep_h endpoint, endpoint_to(link));
  return map_ucx_memory(endpoint, key);
}

}  // namespace kolo
