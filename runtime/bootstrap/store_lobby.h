// StoreLobby: membership of an elastic job without a launcher. Each process has a Lobby of its own,
// and all apply the same records of a LobbyLog to it, so all agree on the worlds. Used by the
// thread that calls init.
//
// - A first world of n ranks has met by other means. Each of its ranks then calls begin(), and is
//   the process of its number. A process that starts later finds the log by find(), and is the next
//   process. It must come as a rank (of the first world) whose process has ended.
// - Who has ended: the process itself says so, or another process of the same host sees it.
// - A member that lives elsewhere, or hangs, and does not come to the next world within `patience`
//   is taken for lost by the others if they are the majority: more than half of the living members,
//   or half with the lowest one.
// - Leftovers: a job whose processes have all ended is over, as far as this host can see; the next
//   job begins anew in its log. Otherwise find() and begin() refuse.
#pragma once

#include "runtime/bootstrap/lobby.h"
#include "runtime/bootstrap/lobby_log.h"
#include "runtime/topology/world.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

class StoreLobby {
 public:
  struct Options {
    Member me;           ///< as in the first world
    std::string secret;  ///< the job's; tells jobs apart
    /// How long members that have come wait for others that are not known to have ended.
    std::chrono::seconds patience;
  };
  struct World {
    int generation = 0;  ///< 0: the others train already
    int rank = 0;
    int size = 1;
  };

  /// For a rank of the first world. kInvalidArgument if the log has another job that lives,
  /// kAborted if the others have taken this process for lost already.
  static Result<std::unique_ptr<StoreLobby>> begin(std::unique_ptr<LobbyLog> log, Options options);
  /// For a process that starts: null if there is no job in the log, or it is over. kInvalidArgument
  /// if the job is another one, or the rank's former process is not known to have ended.
  static Result<std::unique_ptr<StoreLobby>> find(std::unique_ptr<LobbyLog> log, Options options);

  /// This process's place in the next world. `is_new`: it may be in no world yet, and does not wait
  /// for one then. kAborted if the others have taken it for lost or have done their training;
  /// kTimeout, with those that did not come.
  Result<World> next_world(bool is_new, Deadline deadline);
  /// A store in which the members of the present world meet. It fails once one of them has ended or
  /// has left the world.
  Result<std::unique_ptr<Store>> meeting(const World& world, Deadline deadline);
  /// Number of processes that wait for the next world beside the members of this one.
  Result<int> newcomers();
  /// This process ends. The last one removes the log.
  void leave(bool is_done);
  bool is_there_at_exit() const { return log_->is_there_at_exit(); }
  /// kPeerLost if a member of world `generation` has ended or has left it.
  Status check_members(int generation);

 private:
  struct Process {
    int rank = 0;
    std::string who;
    std::string pid_namespace;  ///< where `pid` is valid
    int pid = 0;
  };

  StoreLobby(std::unique_ptr<LobbyLog> log, Options options)
      : log_(std::move(log)), options_(std::move(options)) {}
  Status read(std::chrono::milliseconds wait = {});
  Status apply(const Fields& record);
  /// Writes a record, unless others that are written first make it needless: `is_wanted` is asked
  /// after each.
  template <class IsWanted>
  Status write(const Fields& record, IsWanted is_wanted);
  Status write_end(int process, bool is_done);
  Fields begin_record() const;
  Fields record_of_me(std::string_view kind, int number) const;
  /// Ends the processes among these that this host sees dead. Whether there were any.
  Result<bool> end_dead(const std::vector<int>& processes);
  bool is_dead(int process) const;
  /// No process of the job lives, as far as this host can see.
  bool is_over() const;
  bool is_majority() const;
  Status check_job() const;
  Error taken_for_lost() const;
  std::string text_of(int process) const;
  std::string text_of(const std::vector<int>& processes) const;
  Status end_late(const std::vector<int>& missing);

  const std::unique_ptr<LobbyLog> log_;
  const Options options_;
  const RankInfo here_ = describe_this_process({});
  int number_ = -1;  ///< this process's
  // What the records say.
  std::size_t taken_ = 0;  ///< records
  std::string digest_ = {};
  std::string job_ = {};
  std::string nonce_ = {};  ///< the job's
  int size_ = 0;            ///< ranks of its first world
  int next_ = 0;            ///< number of the next process
  std::optional<Lobby> lobby_;
  std::map<int, Process> processes_ = {};
};

}  // namespace kolo
