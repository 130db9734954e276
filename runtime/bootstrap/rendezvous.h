// Rendezvous: meets the other ranks by the rendezvous method that was found, and returns the
// Bootstrap over which ranks then exchange data. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/rendezvous_method.h"
#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/store_lobby.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace kolo {

/// What a meeting needs besides its rendezvous method.
struct MeetingParts {
  std::string secret = {};

  /// Number of a meeting over the user's store, the same on all ranks, so that leftovers of one
  /// meeting do not harm the next. The store cannot tell a rank how often the others have tried. So
  /// this counts calls of init(), also those that failed before they met anybody: the n-th call of
  /// each rank meets the n-th call of the others. Other rendezvous methods ignore it.
  int number = 1;
  /// Counts this process's exchanges over PMIx or PMI, across all of its meetings, because
  /// launchers pair exchanges by their order alone.
  std::shared_ptr<int> exchanges = std::make_shared<int>(0);
  const void* mpi_communicator = nullptr;  ///< see make_mpi_bootstrap()
  /// For Meeting::kElastic, or with `lobby`: this process has been in a world, or wants to be in
  /// the next one. Else it gets a world of one where the others train already.
  bool joins_next_world = false;
  /// For Meeting::kTcp: a server that refuses this rank may be that of an earlier meeting, which
  /// passes. Tries again until the deadline.
  bool outlasts_refusals = false;
  std::unique_ptr<Store> store = nullptr;  ///< for Meeting::kStore
  /// In an elastic job over a file or a store: see begin_lobby() and find_lobby().
  StoreLobby* lobby = nullptr;
  /// Takes warnings, on any thread, until the Bootstrap is destroyed.
  std::function<void(const std::string& line)> warn = nullptr;
};

/// Collective, except for a world of one. Over TCP, rank 0 serves the store unless the launcher
/// does.
Result<std::unique_ptr<Bootstrap>> meet(const RendezvousMethod& way, MeetingParts parts,
                                        const Environment& environment, Deadline deadline);

/// What an elastic job over a file or a store has besides its rendezvous method.
struct LobbyParts {
  std::string secret = {};
  std::unique_ptr<Store> store = nullptr;  ///< for Meeting::kStore; it outlives no LobbyParts
  std::chrono::seconds patience{};         ///< see StoreLobby::Options
};
/// For a rank of a world that has met by `way`, a file or a store: from now on the job is elastic.
/// Errors: StoreLobby::begin(); kUnsupported where nothing could keep the members.
Result<std::unique_ptr<StoreLobby>> begin_lobby(const RendezvousMethod& way, LobbyParts parts);
/// For a process that starts: the elastic job that it joins; null if there is none.
Result<std::unique_ptr<StoreLobby>> find_lobby(const RendezvousMethod& way, LobbyParts parts);
/// Why the ranks that have met by `way` cannot go on when one is lost, and what helps.
std::string why_not_elastic(const RendezvousMethod& way);

}  // namespace kolo
