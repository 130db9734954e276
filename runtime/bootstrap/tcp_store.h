// TcpStore: a rank's end of the store over TCP. Requests block on the server's answer, so nobody
// polls. Used by the thread that calls init.
#pragma once

#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/store_wire.h"

#include <functional>
#include <memory>
#include <string>

namespace kolo {

/// Who joins, and what it proves to know.
struct Introduction {
  Member me;
  std::string secret;
  std::string meeting = {};  ///< as TcpStoreServer::Options::meeting
};

class TcpStore final : public Store {
 public:
  /// Connects, waiting until the deadline for a server to come, and introduces this rank. kTimeout
  /// if none came, kMismatch for one that is no store of this version or if the ranks disagree on
  /// their number, kInvalidArgument for another secret or a rank that is there already, kShutdown
  /// for one that hangs up without a word, again and again. `warn`: as for connect_to().
  static Result<std::unique_ptr<TcpStore>> join(
      const Endpoint& server, Member me, const std::string& secret, Deadline deadline,
      const std::function<void(const std::string&)>& warn = nullptr);

  /// The same over a connection that is there; the deadline is that of the greeting.
  /// `is_the_meeting` then: whether what answered, be it with a refusal, has proved that it is this
  /// meeting's server.
  static Result<std::unique_ptr<TcpStore>> join_over(UniqueDescriptor connection, Endpoint server,
                                                     const Introduction& introduction,
                                                     Deadline deadline, bool& is_the_meeting);

  /// kPeerLost, here and below: the server or another rank has gone.
  Status set(std::string_view key, std::string value) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  /// One request, whatever the number of ranks.
  Result<Gathered> exchange(std::string_view phase, int rank, int size, std::string value,
                            Deadline deadline) override;
  /// With rank 0 or the launcher gone, that is what the meeting has failed for.
  Error give_up(Error why) override;
  /// This rank has met the others. Without it the server takes the end of the connection for a
  /// failure.
  void leave() override;
  /// This rank will not meet the others, which hear of it. Back when the server has taken note, or
  /// at the deadline.
  void fail(Deadline deadline);

 private:
  TcpStore(Endpoint server, UniqueDescriptor fd) : server_(std::move(server)), fd_(std::move(fd)) {}
  Status introduce(const Introduction& introduction, Deadline deadline, bool& is_the_meeting);
  Result<Fields> request(const Fields& fields, Deadline deadline);
  Error no_answer(const Error& why) const;
  /// Of `limit` bytes at most.
  Result<Fields> receive_reply(Deadline deadline, std::size_t limit);

  const Endpoint server_;
  UniqueDescriptor fd_;
};

}  // namespace kolo
