// Follower: the processes of a further node in an elastic job (--nnodes). Node 0's Leader decides;
// this kolo-run does it, and tells how processes end. Used by Job, on kolo-run's main thread.
#pragma once

#include "runtime/base/unique_handle.h"
#include "tools/run/elastic.h"
#include "tools/run/plan.h"

#include <string>
#include <utility>
#include <vector>

namespace kolo::run {

/// Joins node 0's kolo-run; waits for it up to the deadline of init(). Its errors are those of
/// TcpStore::join(), and kInvalidArgument for a node that is there already.
Result<UniqueDescriptor> join_node_0(const Plan& plan);

class Follower final : public Elastic {
 public:
  /// `link`: from join_node_0().
  explicit Follower(UniqueDescriptor link) : link_(std::move(link)) {}

  /// Node 0 says what to start.
  void begin(const std::vector<Place>&) override {}
  Orders orders() override;
  bool note_end(const Process& process, Roster::End end, std::string& line) override;
  void take_child(pid_t, int) override {}
  void end(int) override {}
  bool is_over() const override { return is_over_; }
  bool waits() const override { return !is_over_; }

 private:
  void take_frames(Orders& orders);
  void break_off(Orders& orders, const std::string& why);

  UniqueDescriptor link_;
  std::string in_ = {};
  bool is_over_ = false;
};

}  // namespace kolo::run
