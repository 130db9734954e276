// TcpStoreServer: where ranks meet over TCP. Owned by kolo-run, or by rank 0 during init. Its own
// thread serves all connections. It drops strangers, garbage and silent connections, which harm
// nobody, and never executes anything that it receives. It has a method for each kind of request
// and each event of a connection.
#pragma once

#include "runtime/base/waker.h"
#include "runtime/bootstrap/lobby.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/store_meetings.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo {

class TcpStoreServer {
 public:
  struct Options {
    Endpoint endpoint;                     ///< port 0: any free port
    int size = 0;                          ///< number of ranks; 0: as the first rank says
    std::string size_by = "the launcher";  ///< who told the size
    std::string secret;                    ///< secret that connections must prove; empty: none
    /// A secret that tells this meeting's server from others to clients with another `secret`;
    /// empty: none.
    std::string meeting = {};
    /// Takes warnings. The server's thread warns of clients with another secret (once for each
    /// address and rank) and once of ranks that others have waited for for some seconds. The thread
    /// in start() warns of a host name that is not known yet.
    std::function<void(const std::string& line)> warn = nullptr;
    Deadline for_name = Deadline::after({});  ///< how long start() looks up an unknown name
    /// True: listens for any number of meetings. False: for one meeting, until the first rank has
    /// met the others; then the port is free for the next server. It keeps listening until then, so
    /// that processes of another job cause an error on both sides.
    bool keeps_listening = true;
    /// For an elastic job: the smallest world that may train. Processes come in place of ranks, and
    /// each world is a meeting. 0: not elastic.
    int least = 0;
    /// Likewise, where nobody notes ends: a process ends with its lifeline (see kLifelineRequest),
    /// and is taken for lost if the others have waited for it that long. 0: ends are noted.
    std::chrono::seconds patience = std::chrono::seconds(0);
    /// With one launcher on each node: their number, and the processes of each.
    int nodes = 1;
    int slots = 1;
  };

  /// kInvalidArgument, with a remedy, for a port that is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start(Options options);
  /// Sends the pending replies, for at most a second, and closes all connections.
  ~TcpStoreServer();

  /// The port that was bound.
  std::uint16_t port() const { return port_; }
  /// Returns when no rank is connected any more, or at the deadline.
  void wait_until_left(Deadline deadline);

  /// For a job that is not elastic: the launcher has seen the rank end with exit status 0. Meetings
  /// that it has not joined fail. Any thread.
  void note_rank_end(int rank);
  /// Likewise: whether a rank of each node but the first has joined a meeting or ended. Any thread.
  bool has_each_node() const;

  // For an elastic job. Any thread.
  /// The launcher starts a process, on this node or another one, or has seen it end. See Lobby.
  void note_start(int process, int node = 0);
  void note_end(int process, bool is_done);
  bool is_in_world(int process) const;
  /// Processes of the present world by rank, also those that have ended; empty before the first.
  std::vector<int> members() const;
  /// No member of the present world lives.
  bool has_lost_world() const;
  /// Whether the program runs within kolo::elastic::run(): otherwise a lost rank ends the job.
  bool is_elastic() const;
  /// With Options::patience: whether the job has done its work. In elastic training one rank says
  /// so for all, otherwise each for itself. Nothing if no process has come.
  std::optional<bool> has_succeeded() const;
  /// Likewise: whether all processes have ended, and not all of them in order.
  bool has_lost_all() const;
  /// Processes for which others have waited that long, to make the next world.
  std::vector<int> late(std::chrono::seconds patience) const;

  // For one launcher on each node. Any thread.
  struct NodeEvent {
    enum class Kind : std::uint8_t {
      kCame,   ///< the node's launcher
      kEnded,  ///< a process, which the lobby knows already: its number, and what was told of it
      kGone,   ///< the node's launcher: its processes that lived, which the lobby knows already
    };
    Kind kind = Kind::kCame;
    int node = 0;
    std::vector<int> numbers = {};  ///< processes
    bool was_in_world = false;      ///< kEnded, kGone: the process, or one of them
    Fields told = {};               ///< kEnded
  };
  std::vector<NodeEvent> take_node_events();
  /// A frame for a node's launcher; nothing if it is not there.
  void tell_node(int node, Fields frame);

  /// All warnings so far in one line; empty if there were none. Any thread.
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
  void on_hello(Connection& connection, const Fields& hello);
  void warn_of(const Connection& connection, int claimed_rank);
  void warn_of_missing();
  Status handle(Connection& connection, Fields request);
  /// A request of a process of an elastic job; nothing if it is of the process's rank.
  std::optional<Status> handle_process(Connection& connection, const Fields& request);
  /// A launcher of another node, or what it tells.
  Status handle_node(Connection& connection, const Fields& request);
  /// Whether a node's launcher may come.
  Status check_node(int number, int slots) const;
  void note_gone(Connection& connection);
  void send_to_nodes();
  /// Tells the tables which ranks have gone or have given up.
  void note_departures();
  void note_closed(Connection& connection);
  /// Ranks that give up, the one judged first in front.
  std::vector<Connection*> giving_up();
  void answer_waiting();
  /// A rank that asks for nothing may wait for others over its Relay.
  void tell_of_failure(Connection& c);
  /// Links the ranks of a large job in their first exchange: see Relay.
  void relay_answers();
  void relay(const std::shared_ptr<const std::string>& answer,
             const std::vector<Connection*>& ranks);
  /// What a process of an elastic job asks for; `is_new`: see kWorldRequest.
  void await_world(Connection& connection, bool is_new);
  /// Opens the next world's meeting, if it can be made now.
  void convene();
  void note_missing();
  std::vector<int> late_locked(std::chrono::seconds patience) const;
  /// With Options::patience: takes processes that do not come for lost.
  void end_late();
  /// Once a process has waited for a world for too long, or in vain: why. It waits no longer.
  std::optional<Fields> refuse_world(const Connection& c);
  /// The reply that a waiting connection can have now; null if it waits on.
  std::shared_ptr<const std::string> reply_to(const Connection& c);
  void flush(Connection& connection);
  void remove_closed();

  const Options options_;
  const std::uint16_t port_;
  UniqueDescriptor listener_;
  Waker waker_;
  StoreMeetings meetings_;  ///< used by the thread alone
  std::list<Connection> connections_;
  /// Encoded replies of complete phases, by meeting and phase: every rank gets the same bytes.
  std::map<std::pair<int, std::string>, std::shared_ptr<const std::string>> complete_;
  Deadline accepts_again_ = Deadline::at({});  ///< when to accept again if descriptors ran out
  bool has_warned_of_missing_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> warnings_;  ///< guarded by mutex_
  bool stop_ = false;
  bool is_empty_ = true;
  std::set<int> nodes_come_ = {0};  ///< nodes of which a rank has joined a meeting or ended
  bool has_each_node_ = false;      ///< guarded by mutex_
  std::optional<Lobby> lobby_;      ///< guarded by mutex_
  bool is_elastic_ = false;         ///< guarded by mutex_
  std::vector<int> gone_;           ///< ranks that note_rank_end() has named; guarded by mutex_
  /// Launchers of other nodes. Guarded by mutex_.
  struct Nodes {
    std::map<int, int> processes = {};  ///< by number: the node
    std::vector<NodeEvent> events = {};
    std::vector<std::pair<int, Fields>> frames = {};  ///< to be sent
  } nodes_ = {};
  /// Since when the lobby waits for the same processes. Guarded by mutex_.
  std::optional<std::pair<std::vector<int>, Deadline::Clock::time_point>> missing_since_;

  std::thread thread_;
};

}  // namespace kolo
