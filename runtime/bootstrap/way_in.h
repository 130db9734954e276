// Which way in a process takes, from its options and its environment, in a fixed order:
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
enum class Meeting : std::uint8_t { kSingle, kMpi, kPmix, kPmi, kTcp, kFile, kStore };

struct WayIn {
  Meeting meeting = Meeting::kSingle;
  int rank = 0;                                  ///< MPI, PMIx and PMI tell it later
  int size = 1;                                  ///< MPI, PMIx and PMI tell it later
  std::optional<int> local_rank = std::nullopt;  ///< as announced
  Endpoint endpoint = {};                        ///< of kTcp
  std::optional<Endpoint> agent = std::nullopt;  ///< of kTcp: torchrun's, where `endpoint` is told
  std::string agent_key = {};                    ///< of it; else the ranks meet at `endpoint`
  bool launcher_serves = false;                  ///< of kTcp: else rank 0 does
  std::string path = {};                         ///< of kFile
  std::string method =
      {};  ///< env, tcp, file, mpi, pmix, pmi, slurm, single or store: all ranks take the same
  std::string why = {};  ///< "RANK and WORLD_SIZE are set"
  std::string job = {};  ///< as its launcher calls it; empty: not known
};

/// What the caller of init says; what is empty is looked for in the environment.
struct WayInRequest {
  std::string init_method = {};
  std::optional<int> rank = std::nullopt;
  std::optional<int> size = std::nullopt;
  std::optional<int> local_rank = std::nullopt;
  bool has_store = false;  ///< of the user's own
  bool has_mpi_communicator = false;
  bool mpi_built = false;
  int open_mpi_version = 0;  ///< 0: another MPI, or none
  bool pmix_built = false;
  bool mpi_running = false;  ///< the user has initialised it
};

/// What they all begin as; the rest is filled in by who makes it.
WayIn way_by(Meeting meeting, std::string method, std::string why);

/// kInvalidArgument for what is incomplete or contradicts itself, kMismatch if a launcher announces
/// more processes than a world of one; both say what to set.
Result<WayIn> find_way_in(const WayInRequest& request, const Config& config,
                          const Environment& environment);

/// "tcp://node1:29500 as rank 1 of 4, because RANK and WORLD_SIZE are set": for the log.
std::string to_text(const WayIn& way);

}  // namespace kolo
