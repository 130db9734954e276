// UcxTransport: ranks are processes, over whatever UCX finds between them. It uses two streams of
// active messages: control messages, and tagged messages, which a MessageMatcher matches with their
// receives. Threads: see transport.h. It has many methods: those of Transport, and what UCX calls
// for sends, arrivals and failures, all on the same links.
//
// connect() makes the endpoints inside a host, while all ranks are there. They have no error
// handling: with it, UCX takes TCP instead of shared memory (4 bytes from 0.1 µs to 8 µs). Across
// hosts UCX reports lost peers. connect() makes these endpoints, too, among up to
// most_connected_ranks(); otherwise they are made on first use. Messages carry a sequence number,
// because UCX may split a large one over several UCX lanes, and a later small one could overtake
// it.
#pragma once

#include "transport/message_matcher.h"
#include "transport/transport.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_fatal.h"
#include "transport/ucx/ucx_message.h"

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace kolo {

class UcxTransport final : public Transport {
 public:
  UcxTransport(UcxResources ucx, const UcxOptions& options);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  std::string_view name() const override { return "ucx"; }
  std::string description() const override;
  std::string address() const override { return ucx_.address; }
  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override;
  Status post_message(int peer, std::span<const std::byte> message) override;
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override;
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override;
  std::vector<MessageKey> unclaimed() const override { return matcher_.unclaimed(); }
  LinkActivity activity(int peer) const override;
  const std::vector<int>& active_peers() const override { return active_peers_; }
  bool progress() override;
  int event_fd() const override { return ucx_.event_fd; }
  bool arm() override;
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                        MemoryType type) override;
  Result<std::string> reach_device(std::span<std::byte> memory) override;
  Result<std::unique_ptr<PeerMapping>> map_peer(int peer, std::string_view key) override;
  void forget(int peer) override;
  Status flush(const Abort& abort, Deadline deadline) override;
  void fail_all(const Error& error) override;

 private:
  struct Early {
    Tag tag;
    UcxArrival arrival;
  };
  /// Both directions of one stream with one peer.
  struct Sequence {
    std::uint64_t next_sent = 0;
    std::uint64_t next_delivered = 0;
    std::map<std::uint64_t, Early> early;  // arrived before an earlier message
  };
  struct Link {
    UcxTransport* owner = nullptr;
    int rank = 0;
    Peer peer;
    ucp_ep_h endpoint = nullptr;        // owned by the worker
    bool active = false;                // it is in active_peers_
    bool reached = false;               // a send to this peer has completed
    bool ended = false;                 // forget() was called for it
    bool idle = false;                  // made by connect() in a large world, and not used yet
    std::optional<Error> failure;       // UCX's error
    std::array<Sequence, 3> sequences;  // by UcxStream
  };

  // ucx_transport.cc
  Status check_peer(int peer) const;
  Status check_link(int peer);  // also that the link has not failed
  Result<ucp_ep_h> endpoint_to(Link& link);
  Result<ucp_ep_h> make_endpoint(const std::string& address, Link* link);
  bool wants_rendezvous(const Link& link, std::size_t bytes) const;
  bool has_sends_to_living() const;
  std::vector<void*> begin_flush();  // the requests that are under way
  Status post(UcxStream stream, Link& link, UcxRequest& request, std::span<const std::byte> data,
              std::uint32_t flags);
  void send_to_self(Tag tag, std::span<const std::byte> data, Transfer& transfer);
  bool deliver_own_messages();
  static void on_sent(void* request, ucs_status_t status, void* user_data);

  // ucx_receive.cc
  template <UcxStream stream>
  static ucs_status_t on_arrival(void* self, const void* header, std::size_t header_length,
                                 void* data, std::size_t length,
                                 const ucp_am_recv_param_t* parameters);
  Status listen();
  ucs_status_t accept(UcxStream stream, const UcxHeader& header, void* data, std::size_t length,
                      std::uint64_t attributes);
  std::pair<UcxArrival, ucs_status_t> keep(void* data, std::size_t length,
                                           std::uint64_t attributes) const;
  void deliver(UcxStream stream, int peer, Early early);
  void consume(int peer, const PostedReceive& receive, UcxArrival arrival);
  void pull(int peer, const PostedReceive& receive, void* descriptor);
  void release(const UcxArrival& arrival);
  TransferEnd end_of(const PostedReceive& receive) const {
    return {rank_, receive.data.size(), receive.call};
  }
  Status check_arrival(const PostedReceive& receive, const TransferEnd& sent,
                       bool is_rendezvous) const;
  static void on_pulled(void* request, ucs_status_t status, std::size_t length, void* user_data);

  // ucx_failure.cc
  /// Runs `call`, which calls UCX, unless UCX has given up.
  template <class Call>
  void call_ucx(Call call) {
    if (given_up_) return;
    if (const auto words = outlive_ucx(std::move(call))) give_up(*words);
  }
  void give_up(const std::string& words);
  static void on_endpoint_failed(void* link, ucp_ep_h endpoint, ucs_status_t status);
  void lose(Link& link, Error error);
  /// Something is about to pass.
  void activate(Link& link);
  /// The link carries something from now on. If it broke before, that counts now.
  void use(Link& link);
  bool report_failures();
  void complete(UcxRequest& request, ucs_status_t status, const char* what);
  bool progress_quietly(std::chrono::milliseconds bound, const std::function<bool()>& done);
  void close_by_force(Link& link);
  bool has_stuck_requests() const;
  bool close_endpoints();
  bool has_answered();

  UcxResources ucx_;
  std::optional<std::size_t> host_rendezvous_from_;  // unset: UCX decides
  int rank_ = -1;
  TransportListener* listener_ = nullptr;
  std::deque<Link> links_;  // by rank; UCX knows the addresses
  std::vector<int> active_peers_;
  ucp_ep_h own_endpoint_ = nullptr;  // to test what can be mapped
  MessageMatcher<UcxArrival> matcher_;
  UcxRequestPool requests_;
  std::size_t sends_pending_ = 0;
  bool has_ended_ = false;             // forget() was called
  std::vector<UcxArrival> left_over_;  // after fail_all(): descriptors to give back to UCX
  std::vector<std::vector<std::byte>> own_messages_;  // posted to this rank itself
  std::optional<Error> failure_;                      // set by fail_all()
  std::optional<Error> given_up_;                     // by UCX: the worker is not touched again
  bool has_told_ = true;                              // the listener, of given_up_
  bool others_may_be_gone_ = false;                   // ranks on other hosts, after a failure
  std::vector<Link*> lost_;  // to be closed and reported: the first may be why the others end
  bool progressing_ = false;
  std::uint64_t delivered_ = 0;  // messages that arrived in order, control ones included
};

}  // namespace kolo
