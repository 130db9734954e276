// OwnLobby: this process in an elastic job without a launcher, whose ranks meet in a file or over
// the user's store. Owned by the process's global, under its lock.
#pragma once

#include "runtime/bootstrap/rendezvous.h"

#include <kolo/kolo.h>

#include <chrono>
#include <memory>
#include <string>

namespace kolo {

class OwnLobby {
 public:
  /// For init(): finds the job that this process joins by `way`, if there is one. Afterwards get()
  /// has its lobby. `heartbeat`: within which members notice a loss.
  Status find(const RendezvousMethod& way, const InitOptions& options, const std::string& secret,
              std::chrono::seconds heartbeat);
  /// The ranks have met by the way that find() was given, and their job is elastic from now on.
  /// False where nothing could keep its members.
  Result<bool> begin(const InitOptions& options);
  StoreLobby* get() const { return lobby_.get(); }
  /// Number of processes that wait; 0 if the file or the store does not answer.
  int newcomers();
  /// The process ends.
  void leave_at_exit(bool is_done);
  void reset() { lobby_.reset(); }

 private:
  LobbyParts parts(const InitOptions& options) const;

  RendezvousMethod way_ = {};
  std::string secret_ = {};
  /// How long members wait for others: until each has noticed a loss, and as long again.
  std::chrono::seconds patience_ = {};
  std::unique_ptr<StoreLobby> lobby_ = nullptr;
};

}  // namespace kolo
