// JobMembers: who knows the processes of this process's elastic job. That is the launcher, or,
// without one, a lobby where ranks meet in a file or over the user's store. Owned by the process's
// global, under its lock.
#pragma once

#include "runtime/bootstrap/rendezvous.h"
#include "runtime/bootstrap/tcp_store.h"

#include <kolo/kolo.h>

#include <chrono>
#include <memory>
#include <string>

namespace kolo {

class JobMembers {
 public:
  /// The ranks meet next by `way`. Unless they are `regrouped`, finds the lobby of the job that
  /// this process joins, if there is one. `heartbeat`: within which members notice a loss.
  Status find(const RendezvousMethod& way, const std::string& secret, const InitOptions& options,
              std::chrono::seconds heartbeat, bool regrouped);
  /// The ranks have met, and their job is elastic from now on, by a lobby. False where nothing
  /// could keep its members.
  Result<bool> begin(const InitOptions& options);
  /// In an elastic job of a launcher: connects to it, if it answers.
  void reach_launcher();
  /// How the last start met.
  const RendezvousMethod& way() const { return way_; }
  StoreLobby* lobby() const { return lobby_.get(); }
  /// Number of processes that wait; 0 if nobody answers.
  int newcomers();
  /// The process ends. `is_done`: it has done what it was for.
  void leave_at_exit(bool is_done);

 private:
  LobbyParts parts(const InitOptions& options) const;

  RendezvousMethod way_ = {};
  std::string secret_ = {};
  /// How long members wait for others: until each has noticed a loss, and as long again.
  std::chrono::seconds patience_ = {};
  std::unique_ptr<TcpStore> launcher_ = nullptr;  ///< its end is this process's
  std::unique_ptr<StoreLobby> lobby_ = nullptr;
};

}  // namespace kolo
