// How UcxTransport ends, after a failure or normally: completion of requests, lost peers,
// fail_all() and the destructor. See ucx_transport_impl.h.
//
// Why fail_all() is safe: only ucp_worker_progress() moves bytes of this process (the receiver
// pulls a rendezvous, see ucx_context.cc), and it is never called again. A network card may still
// deliver data into registered device memory, which the arena keeps to the end. UCX completes
// requests early only on endpoints with error handling. If a request on another endpoint is stuck,
// as to a dead rank on this host, its worker is abandoned, not destroyed. That costs some memory,
// once per failure.
#include "runtime/base/check.h"
#include "transport/ucx/ucx_transport_impl.h"

#include <sched.h>
#include <algorithm>
#include <utility>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kLongestDrain{200};
constexpr std::chrono::milliseconds kLongestClose{1000};

}  // namespace

void UcxTransport::complete(UcxRequest& request, ucs_status_t status, const char* what) {
  Transfer* const transfer = std::exchange(request.transfer, nullptr);
  const int peer = request.peer;
  if (request.is_send) {
    --sends_pending_;
    if (status == UCS_OK) links_[static_cast<std::size_t>(peer)].reached = true;
  }
  requests_.give_back(request);
  if (transfer == nullptr) return;
  if (failure_) {
    transfer->finish(*failure_);
  } else if (status == UCS_OK) {
    transfer->finish(Status());
  } else {
    transfer->finish(ucx_error(status, fmt::format("rank {} {} rank {}", rank_, what, peer)));
  }
}

// Runs inside ucp_worker_progress(), where endpoints should not be closed.
void UcxTransport::on_endpoint_failed(void* link, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto& failed = *static_cast<Link*>(link);
  UcxTransport& transport = *failed.owner;
  if (failed.failure) return;
  transport.lose(failed, ucx_error(status, fmt::format("rank {}'s connection to rank {} broke",
                                                       failed.rank, transport.rank_)));
}

void UcxTransport::lose(Link& link, Error error) {
  error.code = ErrorCode::kPeerLost;
  link.failure = std::move(error);
  lost_.push_back(&link);
}

void UcxTransport::use(Link& link) {
  if (std::exchange(link.idle, false) && link.failure) lost_.push_back(&link);
}

void UcxTransport::give_up(const std::string& words) {
  given_up_ =
      KOLO_ERROR(kTransport,
                 "rank {}: UCX {} has given up: {}; a rank may have gone away while the two "
                 "connected",
                 rank_, ucx_version(), words);
  has_told_ = false;
}

bool UcxTransport::report_failures() {
  if (!std::exchange(has_told_, true) && !failure_) listener_->on_failed(*given_up_);
  if (lost_.empty()) return false;
  for (Link* const link : std::exchange(lost_, {})) {
    close_by_force(*link);
    // In a large world, a rank may leave without telling those that it has not talked to.
    if (link->idle && activity(link->rank).arrivals == 0) continue;
    if (!failure_) listener_->on_peer_failed(link->rank, *link->failure);
  }
  return true;
}

// Spares endpoints that are still connecting: UCX 1.13 ends the process over requests that wait for
// the connection. Until then, these requests use only this process's memory.
void UcxTransport::close_by_force(Link& link) {
  if (link.endpoint == nullptr || link.peer.same_host) return;  // UCX refuses without error mode
  if (!link.reached && !link.failure) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* closing = nullptr;
  call_ucx([&] { closing = ucp_ep_close_nbx(std::exchange(link.endpoint, nullptr), &params); });
  if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
}

bool UcxTransport::progress_quietly(std::chrono::milliseconds bound,
                                    const std::function<bool()>& done) {
  const Deadline deadline = Deadline::after(bound);
  progressing_ = true;
  while (!done() && !deadline.expired() && !given_up_) {
    unsigned moved = 0;
    call_ucx([&] { moved = ucp_worker_progress(ucx_.worker.get()); });
    if (moved == 0) sched_yield();
  }
  progressing_ = false;
  return done();
}

void UcxTransport::fail_all(const Error& error) {
  if (failure_) return;
  failure_ = error;
  others_may_be_gone_ = error.code != ErrorCode::kShutdown &&
                        std::any_of(links_.begin(), links_.end(),
                                    [](const Link& link) { return !link.peer.same_host; });
  if (!progressing_ && !given_up_ && requests_.active() != 0) {
    for (Link& link : links_) close_by_force(link);
    progress_quietly(kLongestDrain, [this] { return !has_stuck_requests(); });
  }
  for (UcxRequest& request : requests_.records()) {
    if (!request.active || request.transfer == nullptr) continue;
    std::exchange(request.transfer, nullptr)->finish(error);
  }
  for (const auto& [key, receive] : matcher_.take_receives()) receive.transfer->finish(error);
  for (auto& [key, arrival] : matcher_.take_arrivals()) {
    if (arrival.local_send != nullptr) {
      arrival.local_send->finish(error);
    } else {
      left_over_.push_back(std::move(arrival));  // released by the destructor
    }
  }
}

bool UcxTransport::has_stuck_requests() const {
  if (requests_.active() == 0) return false;
  const auto& records = requests_.records();
  return std::any_of(records.begin(), records.end(), [this](const UcxRequest& request) {
    if (!request.active) return false;
    const Link& link = links_[static_cast<std::size_t>(request.peer)];
    if (link.ended) return false;
    // A send that waits for its connection would wait on, so it does not count.
    return !request.is_send || link.peer.same_host || link.reached;
  });
}

UcxTransport::~UcxTransport() {
  if (listener_ == nullptr && own_endpoint_ == nullptr) return;
  failure_ = KOLO_ERROR(kShutdown, "rank {}: the transport is closed", rank_);
  if (given_up_ || requests_.active() != 0 || others_may_be_gone_ || !close_endpoints()) {
    // See the head of this file. Neither is destroyed, so the order does not matter.
    ucx_.worker.release();
    ucx_.context.release();
  }
}

bool UcxTransport::close_endpoints() {
  for (auto& [key, arrival] : matcher_.take_arrivals()) left_over_.push_back(std::move(arrival));
  for (Link& link : links_) {
    for (Sequence& sequence : link.sequences) {
      for (auto& [number, early] : sequence.early) left_over_.push_back(std::move(early.arrival));
    }
  }
  for (const UcxArrival& arrival : left_over_) release(arrival);

  std::vector<void*> closing;
  const auto close = [&](ucp_ep_h endpoint) {
    const ucp_request_param_t params{};  // flushes first
    void* request = nullptr;
    call_ucx([&] { request = ucp_ep_close_nbx(endpoint, &params); });
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
  };
  for (Link& link : links_) {
    if (link.failure) close_by_force(link);
    // An endpoint of another host over which nothing was sent owes nothing: the worker destroys it.
    const bool used = link.peer.same_host || activity(link.rank).opened;
    if (link.endpoint != nullptr && used) close(std::exchange(link.endpoint, nullptr));
  }
  if (own_endpoint_ != nullptr) close(own_endpoint_);
  const bool closed = progress_quietly(kLongestClose, [&closing] {
    std::erase_if(closing, [](void* request) {
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    return closing.empty();
  });
  return closed && !given_up_ && has_answered();
}

// UCX itself answers each rank that connects to this one, over its own endpoint. Before 1.14, UCX
// ends the process if the worker is destroyed before the answer has left, or if the other rank is
// gone by then. So a worker with pending answers is left alone; after a failure, so is one that may
// have some.
bool UcxTransport::has_answered() {
  const ucp_request_param_t params{};
  void* const flushing = ucp_worker_flush_nbx(ucx_.worker.get(), &params);
  if (UCS_PTR_IS_PTR(flushing)) ucp_request_free(flushing);
  return flushing == nullptr;
}

}  // namespace kolo
