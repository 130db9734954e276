// Lobby: decides which processes of an elastic job make its next world. kolo-run's store asks it;
// where there is no launcher, each process has one of its own (StoreLobby).
// No sockets, no clock; one thread at a time.
//
//   Lobby lobby(/*least=*/2);
//   for (int process = 0; process < 4; ++process) lobby.start(process);
//   lobby.arrive(process);  // for each that comes, until …
//   if (const auto ranks = lobby.convene()) …  // … the ranks of the next world, by process
//
// - The launcher numbers processes from 0 and never uses a number twice: a replacement for a lost
//   process is another process.
// - Each world has a number, its generation. Generation 0 is before the first world.
// - A world is convened when every living member of the world before has arrived, so that none is
//   left behind, and at least `least` processes are there. The first world waits for all processes
//   that were started.
// - A process that the launcher has seen end, as one on a host that is cut off, comes back in vain.
// - Members keep their order; newcomers follow.
// - Once a member has done the training, newcomers alone make no world: nothing is left to do, and
//   the launcher ends them.
#pragma once

#include <optional>
#include <set>
#include <vector>

namespace kolo {

class Lobby {
 public:
  /// `least`: the smallest world that may train.
  explicit Lobby(int least) : least_(least) {}

  /// Processes 0 … size − 1 have met already: they are world 1. Before anything else.
  void begin(int size);
  /// The launcher starts a process, or has seen it end. `is_done`: it has done its training, so
  /// those that are left do what is left in a world of any size.
  void start(int process) { living_.insert(process); }
  void end(int process, bool is_done);
  /// A process waits for the next world, or waits no longer.
  void arrive(int process) { waiting_.insert(process); }
  void leave(int process) { waiting_.erase(process); }

  /// The next world's processes by rank, if it can be made now. They wait no longer.
  std::optional<std::vector<int>> convene();

  int generation() const { return generation_; }
  /// The launcher has started it, and has not seen it end.
  bool is_living(int process) const { return living_.count(process) > 0; }
  bool is_member(int process) const;
  /// The present world, by rank.
  const std::vector<int>& members() const { return members_; }
  /// Number of waiting processes that the present world does not have.
  int newcomers() const;
  /// Whether none of the present world's members lives, and none has done its training: what they
  /// knew is lost.
  bool is_lost() const;
  /// Whether a member of the present world waits for the next one.
  bool is_left() const;
  /// Living members of the present world for which others wait.
  std::vector<int> missing() const;
  /// Number of waiting processes that the next world lacks; 0: none.
  int lacking() const;
  /// Number of members that have done their training, and whether a process has ended otherwise.
  int done() const { return done_; }
  bool has_lost() const { return has_lost_; }
  /// Number of processes that live.
  int living() const { return static_cast<int>(living_.size()); }
  /// Whether those that live can make a world.
  bool is_enough() const { return living() >= least_; }

 private:
  int least_;
  int generation_ = 0;
  std::set<int> living_;
  std::set<int> waiting_;
  std::vector<int> members_;  ///< the present world, by rank
  int done_ = 0;
  bool has_lost_ = false;
};

}  // namespace kolo
