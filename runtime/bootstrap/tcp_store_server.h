// TcpStoreServer: where ranks meet over TCP. Owned by kolo-run, or by rank 0 while it is in init.
// One thread of its own serves all connections; strangers, garbage and silent connections are
// dropped and harm nobody, and nothing that is received is ever run.
#pragma once

#include "runtime/base/waker.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/store_meetings.h"

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo {

class TcpStoreServer {
 public:
  struct Options {
    Endpoint endpoint;                     ///< port 0: one that is free
    int size = 0;                          ///< number of ranks; 0: as the first one says
    std::string size_by = "the launcher";  ///< who knows that number
    std::string secret;                    ///< what connections must prove to know; empty: nothing
    /// What tells this meeting's server from others, for those who know another `secret`; empty:
    /// nothing does.
    std::string meeting = {};
    /// Told of who comes with another secret, once of each address and rank, and of ranks that
    /// others have waited for for some seconds, once, by the server's thread; and by that of
    /// start() of a host name that nobody knows yet.
    std::function<void(const std::string& line)> warn = nullptr;
    Deadline for_name = Deadline::after({});  ///< until when start() asks again for such a name
    bool keeps_listening = true; /**< for any number of meetings; false: for one, until the first
                                      rank has met the others, so that the port is free for the next
                                    server, and not before: processes of another job that come
                                    meanwhile are told, and tell */
  };

  /// kInvalidArgument for a port that is taken, with what to do.
  static Result<std::unique_ptr<TcpStoreServer>> start(Options options);
  /// Sends the replies that are under way, for a second at most, and closes all connections.
  ~TcpStoreServer();

  /// The port that was bound.
  std::uint16_t port() const { return port_; }
  /// Returns when no rank is connected any more, or at the deadline.
  void wait_until_left(Deadline deadline);
  /// All that was warned of, in one line; empty if nothing was. Any thread.
  std::string warnings() const;

 private:
  struct Connection;

  TcpStoreServer(Options options, Listener listener);
  void serve();
  bool is_flushing() const;
  void wait_for_events();
  void accept_all();
  void receive(Connection& connection);
  void take_requests(Connection& connection);
  void greet(Connection& connection, const Fields& hello);
  void warn_of(const Connection& connection, int claimed_rank);
  void warn_of_missing();
  Status handle(Connection& connection, Fields request);
  void answer_waiting();
  void flush(Connection& connection);
  void remove_closed();

  const Options options_;
  const std::uint16_t port_;
  UniqueDescriptor listener_;
  Waker waker_;
  StoreMeetings meetings_;  ///< of the thread
  std::list<Connection> connections_;
  /// Whole replies of phases that are complete, by meeting: they are the same for every rank.
  std::map<std::pair<int, std::string>, std::shared_ptr<const std::string>> complete_;
  Deadline accepts_again_ = Deadline::at({});  ///< after a lack of descriptors
  bool has_warned_of_missing_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> warnings_;  ///< under the mutex
  bool stop_ = false;
  bool is_empty_ = true;

  std::thread thread_;
};

}  // namespace kolo
