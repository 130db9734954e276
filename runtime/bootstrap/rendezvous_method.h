// Chooses a process's rendezvous method from its options and environment, in a fixed order:
// InitOptions, KOLO_*, RANK and WORLD_SIZE, a running MPI launcher, a Slurm step, else a world of
// one. Pure; used by the thread that calls init.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/bootstrap/socket.h"

#include <kolo/config.h>

#include <cstdint>
#include <optional>
#include <string>

namespace kolo {

/// Where ranks meet.
enum class Meeting : std::uint8_t { kSingle, kMpi, kPmix, kPmi, kTcp, kFile, kStore, kElastic };

struct RendezvousMethod {
  Meeting meeting = Meeting::kSingle;
  int rank = 0;  ///< MPI, PMIx and PMI tell it later; for kElastic the process's number
  int size = 1;  ///< MPI, PMIx and PMI tell it later
  std::optional<int> local_rank = std::nullopt;  ///< as announced
  Endpoint endpoint = {};                        ///< for kTcp and kElastic
  std::optional<Endpoint> agent = std::nullopt;  ///< for kTcp: torchrun's, knows the endpoint
  std::string agent_key = {};                    ///< with agent; else meet at `endpoint`
  bool launcher_serves = false;                  ///< for kTcp: else rank 0 serves
  std::string path = {};                         ///< for kFile
  /// env, tcp, file, elastic, mpi, pmix, pmi, slurm, single or store; the same on all ranks.
  std::string method = {};
  std::string why = {};  ///< "RANK and WORLD_SIZE are set"
  std::string job = {};  ///< its launcher's name for it; empty: not known
};

/// What the caller of init gives. Empty fields are looked up in the environment.
struct RendezvousRequest {
  std::string init_method = {};
  std::optional<int> rank = std::nullopt;
  std::optional<int> size = std::nullopt;
  std::optional<int> local_rank = std::nullopt;
  bool has_store = false;  ///< the user's own store
  bool has_mpi_communicator = false;
  bool mpi_built = false;
  int open_mpi_version = 0;  ///< 0: another MPI, or none
  bool pmix_built = false;
  bool mpi_running = false;  ///< the user has initialised MPI
};

/// A method with these fields; the caller fills in the rest.
RendezvousMethod way_by(Meeting meeting, std::string method, std::string why);

/// kInvalidArgument if settings are incomplete or contradict each other, kMismatch if a launcher
/// announces more processes than a world of one. Both messages say what to set.
Result<RendezvousMethod> find_rendezvous_method(const RendezvousRequest& request,
                                                const Config& config,
                                                const Environment& environment);

/// "tcp://node1:29500 as rank 1 of 4, because RANK and WORLD_SIZE are set": for the log.
std::string to_text(const RendezvousMethod& way);

}  // namespace kolo
