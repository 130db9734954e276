// Leader: decides on the processes of an elastic job. It joins the Roster, the store's Lobby, the
// host discovery and, with one kolo-run on each node, those of the other nodes. Used by Job, on
// kolo-run's main thread.
#pragma once

#include "runtime/bootstrap/tcp_store_server.h"
#include "tools/run/elastic.h"
#include "tools/run/node_frames.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kolo::run {

class Leader final : public Elastic {
 public:
  Leader(ElasticOptions options, std::vector<Host> hosts, TcpStoreServer& lobby);

  void begin(const std::vector<Place>& places) override;
  Orders orders() override;
  bool note_end(const Process& process, Roster::End end, std::string& line) override;
  void take_child(pid_t pid, int status) override;
  void end(int exit_code) override;
  bool is_over() const override { return is_over_; }
  bool waits() const override;

 private:
  void look_for_hosts(Clock::time_point now, Orders& orders);
  /// Ends those for which the others have waited long enough.
  void kill_late(Orders& orders);
  /// A process has ended, which the lobby knows. See note_end().
  bool take_end(const ProcessEnd& ended, const std::string& host, bool was_in_world,
                std::string& line);

  // One kolo-run on each node.
  bool has_nodes() const { return !options_.others.empty(); }
  /// 0: this one.
  int node_of(const Place& place) const;
  void look_at_nodes(Orders& orders);
  void take_node(int node);
  void lose_node(const TcpStoreServer::NodeEvent& event, Orders& orders);
  /// What the roster may use of the nodes.
  void set_nodes();
  void tell_all(const Fields& frame);
  /// Gives `process` to the kolo-run of its node, if it is another one.
  bool pass_on(int process, std::string_view order);
  /// Starts it there, if it is another node's.
  bool start_elsewhere(const Place& place);

  const ElasticOptions options_;
  const std::vector<Host> hosts_;
  TcpStoreServer& lobby_;
  Roster roster_;
  std::optional<Discovery> discovery_ = {};
  std::vector<Host> listed_ = {};  ///< as the discovery has named them last
  std::set<int> killed_ = {};      ///< processes that came too late
  std::set<int> nodes_ = {};       ///< further nodes whose kolo-run is there
  std::set<int> gone_nodes_ = {};  ///< whose kolo-run was there
  bool has_changed_ = true;        ///< since the last orders
  Clock::time_point next_look_ = {};
  bool is_over_ = false;
};

}  // namespace kolo::run
