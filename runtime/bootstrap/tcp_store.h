// TcpStore: a rank's end of the store over TCP. A request blocks until the server answers, so
// nobody polls. Used by the thread that calls init.
#pragma once

#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/relay.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/store_wire.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace kolo {

/// The rank that joins, and what it proves to know.
struct Introduction {
  Member me;
  std::string secret;
  std::string meeting = {};  ///< see TcpStoreServer::Options::meeting
  /// Told if the other side does not greet, and, on rank 0 of a large job, if ranks do not reach
  /// each other.
  std::function<void(const std::string&)> warn = nullptr;
};

class TcpStore final : public Store {
 public:
  /// Connects, waiting for a server until the deadline, and introduces this rank. kTimeout if no
  /// server came. kMismatch if it is not a store of this version, or if the ranks disagree on their
  /// number. kInvalidArgument for another secret or a rank that is there already. kShutdown if the
  /// server hangs up again and again without a reply. `warn`: see connect_to(); it is also told of
  /// a server that does not greet. `is_another` is asked where the other side does not greet within
  /// a second: true if it is no store of kolo's, which is kUnsupported then.
  static Result<std::unique_ptr<TcpStore>> join(
      const Endpoint& server, Member me, const std::string& secret, Deadline deadline,
      const std::function<void(const std::string&)>& warn = nullptr,
      const std::function<bool()>& is_another = nullptr);

  /// Joins over an existing connection; the deadline is for the greeting. Sets `is_the_meeting` if
  /// the other side has proved that it is this meeting's server, even if it refused this rank.
  static Result<std::unique_ptr<TcpStore>> join_over(UniqueDescriptor connection, Endpoint server,
                                                     const Introduction& introduction,
                                                     Deadline deadline, bool& is_the_meeting);

  /// For the store of an elastic job, which `me.rank`, the process's number, has joined: this
  /// rank's place in the next world, whose meeting it has joined then. `is_new`: see kWorldRequest.
  struct World {
    int generation = 0;
    int rank = 0;
    int size = 1;
  };
  Result<World> next_world(bool is_new, Deadline deadline);
  /// Likewise: this connection stays for as long as the process does; leave() then says that the
  /// process has done its work.
  void be_lifeline();
  /// For the launcher of node `node`, which has joined as `me.rank`: see kNodeRequest. Returns the
  /// connection, over which frames come and go from now on.
  Result<UniqueDescriptor> join_as_node(int node, int slots, Deadline deadline);
  /// Likewise: number of processes that wait for the next world beside the members of this one.
  Result<int> newcomers(Deadline deadline);

  /// kPeerLost, here and below: the server or another rank is gone.
  Status set(std::string_view key, std::string value) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  /// One request, whatever the number of ranks. In a large job the first exchange also links the
  /// ranks, and later ones pass the store by: see Relay.
  Result<Gathered> exchange(std::string_view phase, int rank, int size, std::string value,
                            Deadline deadline) override;
  /// If rank 0 or the launcher is gone, that is the meeting's first failure.
  Error give_up(Error why) override;
  /// This rank has met the others. Without this call the server takes the end of the connection for
  /// a failure.
  void leave() override;
  /// This rank will not meet the others, and the server tells them. Returns when the server has
  /// noticed, or at the deadline.
  void fail(Deadline deadline);

 private:
  TcpStore(Endpoint server, UniqueDescriptor fd, std::function<void(const std::string&)> warn)
      : server_(std::move(server)), fd_(std::move(fd)), warn_(std::move(warn)) {}
  Status introduce(const Introduction& introduction, Deadline deadline, bool& is_the_meeting);
  Result<Fields> request(const Fields& fields, Deadline deadline);
  /// A request's reply, of whatever kind.
  Result<Fields> ask(const Fields& fields, Deadline deadline);
  Result<std::string> ask_for_body(const Fields& fields, Deadline deadline);
  Result<std::string> exchange_by_store(Fields request, int rank, int size, Deadline deadline);
  Result<RelayPlace> place_of(const Fields& reply, int rank, int size) const;
  Error no_answer(const Error& why) const;

  const Endpoint server_;
  UniqueDescriptor fd_;
  const std::function<void(const std::string&)> warn_;
  std::optional<Relay> relay_;  ///< from the first exchange of a large job on
  /// The frame of what this rank gave in its last exchange, if the store does not know it. Others
  /// whose links broke may need it.
  std::string untold_;
};

}  // namespace kolo
